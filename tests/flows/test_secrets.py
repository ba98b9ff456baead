"""Secrets are planted wherever a run takes text in, and looked for in everything that it gives out."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.serve import environment, serving
from flows.cli import app
from settings.source import find
from tasks.store import read_record
from tests.flows.conftest import BRINGUP, Machine
from tests.flows.terminal import Terminal
from tests.ports import free_port

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

BY_NAME = "plain words that only their name betrays"
BY_SHAPE = "hf_PlantedPlantedPlantedPlanted"  # nobody said that it is secret
IN_LADDER = "another quiet value"
BY_PATTERN = "Paris"  # in the replies, because the user said so
IN_SERVER_INFO = "fcfs"  # told by /server_info and the log alone: no argument of ours
PLANTED = (BY_NAME, BY_SHAPE, IN_LADDER, BY_PATTERN, IN_SERVER_INFO)
SAYING = (
    "show", "show --json", "explain", "logs", "logs --json", "logs --attempt 1", "logs --attempt 2", "report",
    "history", "history --json", "compare latest latest",
)  # fmt: skip


@pytest.fixture
def prefect_server(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server of this test's own: what other tests' runs say of Paris stands in the shared one's database."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "BRINGUP_"))}
    env = environment(own | {"PREFECT_HOME": str(tmp_path / "prefect")}, free_port())
    with serving(env):
        yield env


def test_what_was_planted_is_in_no_output(machine: Machine, tmp_path: Path) -> None:
    ladder = tmp_path / "planted.toml"
    ladder.write_text(f"""
        start = "first"
        gates = ["ready", "warmup", "decode", "bench"]
        [base.args]
        tp-size = 8
        [rung.first]
        why = "carries a secret in its command: the log tells it, and so does /server_info"
        args = {{ served-model-name = "{BY_SHAPE}" }}
        on = [{{ kind = "nan", goto = "second" }}]
        [rung.second]
        why = "carries one in its environment only, so that it can be taken away"
        env = {{ PLANTED_PASSWORD = "{IN_LADDER}" }}
        args = {{ sparse-prefill = "flashmla_sparse", sparse-decode = "flashmla_sparse", kv-cache-dtype = "bfloat16" }}
        [default]
        on = [{{ stop = "there is no other" }}]
    """)
    machine.env.update(
        {
            "BRINGUP_TARGET__ENV__PLANTED_API_KEY": BY_NAME,
            "BRINGUP_TARGET__ENV__REHEARSAL_STORY": str(find("rehearsals", "founding")),
            "BRINGUP_RUN__REDACT": json.dumps([BY_PATTERN, rf"\b{IN_SERVER_INFO}\b"]),
            "BRINGUP_RUN__PUBLISH": str(tmp_path / "shared"),
        }
    )
    with Terminal([str(BRINGUP), "run", "--target", "rehearsal", "--ladder", str(ladder)], machine.env) as terminal:
        assert terminal.process.wait(timeout=200) == 0, terminal.after
    run, out = machine.newest(), tmp_path / "out"
    said = {"the live screen": terminal.raw.decode()}
    for words in SAYING:
        said[words] = _said(machine, *words.split())
    for form in ("shell", "systemd", "toml", "json"):
        said[form] = _said(machine, "export", "--as", form, "--out", str(out / form))
    said["trend"] = _said(machine, "report", "--history", "--out", str(out / "history.html"))

    _the_plants_have_taken(machine, run)
    files = [p for folder in (run, out, tmp_path / "shared") for p in folder.rglob("*") if p.is_file()]
    names = {p.name for p in files}
    assert names >= {
        "record.json", "report.md", "report.html", "events.jsonl", "run.lock.toml", "serve.sh", "sglang-second.service",
        "history.html",
    }  # fmt: skip
    assert (tmp_path / "shared" / run.name / "record.json").is_file()
    database = b"".join(p.read_bytes() for p in Path(machine.env["PREFECT_HOME"]).rglob("*.db*"))
    assert run.name.encode() in database  # it holds artifacts, logs and events of this run
    for secret in PLANTED:
        assert [] == [str(p) for p in files if secret.encode() in p.read_bytes()]
        assert [] == [where for where, text in said.items() if secret in text]
        assert secret.encode() not in database


def _said(machine: Machine, *words: str) -> str:
    """What a command prints; in this process, since each start of Python costs more than the command."""
    ran = CliRunner(env=machine.env).invoke(app, list(words), catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def _the_plants_have_taken(machine: Machine, run: Path) -> None:
    """Each secret came to where it could have got out, and was taken out there."""
    on_the_host = b"".join(p.read_bytes() for p in machine.state.rglob("*") if p.is_file())
    assert BY_SHAPE.encode() in on_the_host
    assert f"schedule_policy='{IN_SERVER_INFO}'".encode() in on_the_host
    first, second = read_record(run).attempts
    assert "<secret>" in first.argv
    assert second.env["PLANTED_PASSWORD"] == second.env["PLANTED_API_KEY"] == "<secret>"
    assert any("<secret>" in v.reply for v in second.decode)  # the capital of France
    raw = json.loads((run / str(second.bench[0].raw and second.bench[0].raw.path)).read_text().splitlines()[0])
    assert raw["server_info"]["schedule_policy"] == "<secret>"
