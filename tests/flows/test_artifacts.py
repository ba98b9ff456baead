"""The run page tells the story without a log: path, pages, bars and the winner are there, and told truly."""

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest

from flows.artifacts import Bars
from tasks.session import Progress
from tasks.store import read_record
from tests.flows.conftest import Machine

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]


def test_a_run_leaves_path_pages_bars_and_winner(machine: Machine) -> None:
    assert machine.bringup("rehearse", "--story", "oom-then-nan").returncode == 0
    record, folder = read_record(machine.newest()), machine.newest()
    winner = next(a for a in _artifacts(machine, "winner") if str(folder) in a["data"])
    assert "--kv-cache-dtype bfloat16" in winner["data"]
    mine = [a for a in _artifacts(machine, "path") if a["flow_run_id"] == winner["flow_run_id"]]
    assert len(mine) == 1
    assert "taken after 5 " in mine[0]["data"]
    assert "1. auto: OOM in ready" in mine[0]["data"]
    children = {"parent_flow_run_id": {"any_": [winner["flow_run_id"]]}}
    attempts = _ask(machine, "/flow_runs/filter", {"flow_runs": children})
    names = {run["name"]: run["state"]["name"] for run in attempts}
    assert names["6-bf16-kv (flashmla_sparse)"] == "Passed"
    assert names["1-auto"] == "OOM"  # it never said what it ran with
    ids = {run["id"] for run in attempts}
    pages = [a["data"] for a in _artifacts(machine, "attempt") if a["flow_run_id"] in ids]
    assert len(pages) == sum(a.log is not None for a in record.attempts)
    assert any("The log around line" in page and "torch.OutOfMemoryError" in page for page in pages)
    assert any("| kv-cache-dtype | bfloat16 | bfloat16 |" in page for page in pages)
    bars = [a for a in _artifacts(machine, "progress") if a["flow_run_id"] in ids]
    assert bars
    assert all(0 <= a["data"] <= 100 for a in bars)


def test_a_bar_that_cannot_be_drawn_stops_nothing() -> None:
    heard: list[Progress] = []
    bars = Bars(heard.append)
    for fraction in (None, 0.1, 0.2):  # there is no run here to which a bar could belong
        bars(Progress(1, "auto", "ready", "load: 1 of 10", fraction))
    assert len(heard) == 3


def _artifacts(machine: Machine, key: str) -> list[dict[str, Any]]:
    return _ask(machine, "/artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})


def _ask(machine: Machine, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    request = Request(
        machine.env["PREFECT_API_URL"] + path, json.dumps({**body, "limit": 200}).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urlopen(request, timeout=30) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())
    return found
