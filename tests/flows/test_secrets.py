"""Secrets are planted wherever a run takes text in, and looked for in everything that it gives out."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.serve import environment, serving
from settings.source import find
from tasks.store import read_record
from tests.flows.conftest import Machine
from tests.ports import free_port

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

BY_NAME = "plain words that only their name betrays"
BY_SHAPE = "hf_PlantedPlantedPlantedPlanted"  # nobody said that it is secret
IN_LADDER = "another quiet value"
BY_PATTERN = "Paris"  # in the replies, because the user said so
PLANTED = (BY_NAME, BY_SHAPE, IN_LADDER, BY_PATTERN)


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
        start = "only"
        gates = ["ready", "warmup", "decode", "bench"]
        [base.args]
        tp-size = 8
        served-model-name = "{BY_SHAPE}"
        [rung.only]
        why = "carries a secret in its command and one in its environment"
        env = {{ PLANTED_PASSWORD = "{IN_LADDER}" }}
        args = {{ sparse-prefill = "flashmla_sparse", sparse-decode = "flashmla_sparse", kv-cache-dtype = "bfloat16" }}
        [default]
        on = [{{ stop = "there is no other" }}]
    """)
    machine.env.update(
        {
            "BRINGUP_TARGET__ENV__PLANTED_API_KEY": BY_NAME,
            "BRINGUP_TARGET__ENV__REHEARSAL_STORY": str(find("rehearsals", "founding")),
            "BRINGUP_RUN__REDACT": json.dumps([BY_PATTERN]),
        }
    )
    ran = machine.bringup("run", "--target", "rehearsal", "--ladder", str(ladder))
    assert ran.returncode == 0, ran.stderr
    run = machine.newest()
    said = [ran.stdout + ran.stderr]
    for words in (["show"], ["explain"], ["show", "--json"], ["logs"], ["report"]):
        said.append(machine.bringup(*words).stdout)

    on_the_host = b"".join(p.read_bytes() for p in machine.state.rglob("*") if p.is_file())
    assert BY_SHAPE.encode() in on_the_host  # the plant has taken
    record = read_record(run)
    assert any("<secret>" in v.reply for v in record.attempts[0].decode)  # the capital of France
    assert "<secret>" in record.attempts[0].argv
    assert record.attempts[0].env["PLANTED_PASSWORD"] == "<secret>"
    files = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert {"record.json", "report.md", "report.html", "events.jsonl"} <= {str(p) for p in files}
    assert any("<secret>" in text for text in said)
    database = b"".join(p.read_bytes() for p in Path(machine.env["PREFECT_HOME"]).rglob("*.db*"))
    assert run.name.encode() in database  # it holds artifacts, logs and events of this run
    for secret in PLANTED:
        assert [] == [str(name) for name, content in files.items() if secret.encode() in content]
        assert not any(secret in text for text in said)
        assert secret.encode() not in database
