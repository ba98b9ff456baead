"""Taken away, the winner runs as it ran: script, unit and lock start the same server with the same settings."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from settings.engine import load_engine
from settings.source import find
from settings.target import load_target
from tasks.pure.plan import effective
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine, wait_for
from tests.tasks.pure.test_export import words_of

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(280)]


def test_the_round_trip_ends_with_the_same_server(machine: Machine, tmp_path: Path) -> None:
    assert machine.bringup("rehearse", "--story", "founding").returncode == 0
    record = read_record(machine.newest())
    variables = {**load_target("rehearsal").plain_env(), "REHEARSAL_HOST": tmp_path.name}
    variables["REHEARSAL_STORY"] = str(find("rehearsals", "founding"))
    told = tmp_path / "told.env"
    told.write_text("".join(f"{name}='{value}'\n" for name, value in variables.items()))

    out = tmp_path / "out"
    assert machine.bringup("export", "--as", "shell", "--out", str(out)).returncode == 0
    with _serving(["bash", str(out / "serve.sh"), str(told)], {}, machine.port):
        assert _runs_with(machine.port) == _won(record)
        ran = subprocess.run(["bash", out / "serve.sh", "health"], capture_output=True, text=True, check=False)
        assert (0, "decodes\n") == (ran.returncode, ran.stdout)
    ran = subprocess.run(["bash", out / "serve.sh", "health"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "no answer" in ran.stderr

    assert machine.bringup("export", "--as", "systemd", "--out", str(out), "--at", str(out)).returncode == 0
    with _serving(words_of((out / "sglang-bf16-kv.service").read_text()), variables, machine.port):
        assert _runs_with(machine.port) == _won(record)

    exported = json.loads(machine.bringup("export", "--as", "json").stdout)
    assert exported["server"]["argv"] == list(record.attempts[-1].argv)

    lock = tmp_path / "winner.lock.toml"
    lock.write_text(machine.bringup("export", "--as", "toml").stdout)
    assert lock.read_text() == (machine.newest() / "run.lock.toml").read_text()
    machine.env["BRINGUP_TARGET__ENV__REHEARSAL_STORY"] = variables["REHEARSAL_STORY"]
    ran = machine.bringup("run", "--target", "rehearsal", "--lock", str(lock), "--json")
    assert ran.returncode == 0, ran.stderr
    again = RunRecord.model_validate_json(ran.stdout)
    assert [a.rung for a in again.attempts] == ["bf16-kv"]
    assert (again.attempts[0].argv, again.attempts[0].effective) == (record.attempts[-1].argv, _won(record))
    assert again.differs == ()


def _won(record: RunRecord) -> dict[str, Any]:
    return record.attempts[-1].effective


def _runs_with(port: int) -> dict[str, Any]:
    with urlopen(f"http://127.0.0.1:{port}/get_server_info", timeout=10) as answer:
        return effective(json.loads(answer.read()), load_engine("sglang"))


@contextmanager
def _serving(argv: list[str], variables: Mapping[str, str], port: int) -> Iterator[None]:
    """The server, ready; its whole session is ended afterwards."""
    env = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), **variables}
    server = subprocess.Popen(argv, env=env, start_new_session=True, stdout=subprocess.DEVNULL)

    def answers() -> bool:
        assert server.poll() is None, f"ended with {server.returncode}"
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_for(answers, 60, "the exported server is ready")
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(10)
