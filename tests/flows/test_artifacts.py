"""The run page tells the story without a log: path, pages, bars and the winner are there, and told truly."""

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest
import structlog.testing

from flows.artifacts import quietly
from tasks.store import read_record
from tests.flows.conftest import Machine

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]


def test_a_run_leaves_path_pages_bars_and_winner(machine: Machine) -> None:
    assert machine.bringup("rehearse", "--story", "oom-then-nan").returncode == 0
    record, winner = read_record(machine.newest()), _winner(machine)
    assert "--kv-cache-dtype bfloat16" in winner["data"]
    mine = [a for a in _artifacts(machine, "path") if a["flow_run_id"] == winner["flow_run_id"]]
    assert len(mine) == 1
    assert "taken after 5 " in mine[0]["data"]
    assert "1. auto: OOM in ready" in mine[0]["data"]
    attempts = _attempts(machine, winner)
    names = {run["name"]: run["state"]["name"] for run in attempts}
    assert names["6-bf16-kv (flashmla_sparse)"] == "Passed"
    assert names["1-auto"] == "OOM"  # it never said what it ran with
    ids = {run["id"] for run in attempts}
    pages = [a["data"] for a in _artifacts(machine, "attempt") if a["flow_run_id"] in ids]
    assert len(pages) == sum(a.log is not None for a in record.attempts)
    assert any("The log around line" in page and "torch.OutOfMemoryError" in page for page in pages)
    assert any("| kv-cache-dtype | bfloat16 | bfloat16 |" in page for page in pages)


def test_a_slow_load_is_shown_as_a_bar(machine: Machine) -> None:
    assert machine.bringup("rehearse", "--story", "slow-but-healthy").returncode == 0
    ids = {run["id"] for run in _attempts(machine, _winner(machine))}
    bars = [a for a in _artifacts(machine, "progress") if a["flow_run_id"] in ids]
    assert bars
    assert all(0 <= float(a["data"]) <= 100 for a in bars)


def test_a_fault_in_drawing_is_told_and_stops_nothing_but_a_signal_goes_through() -> None:
    def broken() -> None:
        raise RuntimeError("the server blinked")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with structlog.testing.capture_logs() as said:
        quietly(broken)
    assert [("page.failed", "RuntimeError: the server blinked")] == [(e["event"], e["why"]) for e in said]
    with pytest.raises(KeyboardInterrupt):
        quietly(interrupted)


def _winner(machine: Machine) -> dict[str, Any]:
    """The page of the winner of this machine's newest run; the server has those of other tests, too."""
    return next(a for a in _artifacts(machine, "winner") if str(machine.newest()) in a["data"])


def _attempts(machine: Machine, winner: dict[str, Any]) -> list[dict[str, Any]]:
    children = {"parent_flow_run_id": {"any_": [winner["flow_run_id"]]}}
    return _ask(machine, "/flow_runs/filter", {"flow_runs": children})


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
