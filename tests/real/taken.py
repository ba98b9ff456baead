"""A winner that was exported, run without any of the product: by its script, or by what its unit says."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from settings.engine import load_engine
from settings.lock import Lock
from tasks.deadline import Deadline, pause
from tasks.pure.plan import effective
from tests.tasks.pure.test_export import variables_of, words_of

__all__ = ["Taken", "taken_away"]

_BARE = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/root")}  # what systemd gives a service
_READY_WITHIN_S = 180.0


@dataclass(frozen=True)
class Taken:
    """The server that runs by an export, and the check that lies beside it."""

    port: int
    check: tuple[str, ...]

    def effective(self) -> dict[str, Any]:
        answer = httpx.get(f"http://127.0.0.1:{self.port}/get_server_info", timeout=30, trust_env=False)
        return effective(answer.raise_for_status().json(), load_engine("sglang"))

    def health(self) -> tuple[int, str]:
        ran = subprocess.run(self.check, env=_BARE, capture_output=True, text=True, timeout=90, check=False)
        return ran.returncode, ran.stdout


@contextlib.contextmanager
def taken_away(folder: Path, form: str, out: Path) -> Iterator[Taken]:
    """Export the winner of the run in `folder` as `form`, start it as its user would, and wait until it answers."""
    bringup = str(Path(sys.executable).with_name("bringup"))
    export = [bringup, "export", str(folder), "--as", form, "--out", str(out), "--at", str(out)]
    subprocess.run(export, check=True, capture_output=True, timeout=60)
    told = subprocess.run([bringup, "export", str(folder), "--as", "json"], check=True, capture_output=True, timeout=60)
    lock = Lock.model_validate_json(told.stdout)
    argv, env, check = _as_systemd(out) if form == "systemd" else _as_shell(out)
    assert not lock.server.hidden
    with (out / "server.log").open("wb") as log:
        server = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _until_it_answers(server, lock.server.port, out / "server.log")
        yield Taken(lock.server.port, check)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(30)


def _as_shell(out: Path) -> tuple[list[str], Mapping[str, str], tuple[str, ...]]:
    script = str(out / "serve.sh")
    return [script], _BARE, (script, "health")


def _as_systemd(out: Path) -> tuple[list[str], Mapping[str, str], tuple[str, ...]]:
    """ExecStart and Environment of the unit; ExecStartPost says how its health is asked, here without the waiting."""
    (unit,) = (p.read_text() for p in out.glob("*.service") if not p.stem.endswith("-health"))
    check = words_of(unit, "ExecStartPost")
    assert check[-2] == "--wait"
    return words_of(unit), {**_BARE, **variables_of(unit)}, tuple(check[:-2])


def _until_it_answers(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = Deadline.after(_READY_WITHIN_S)
    while True:
        assert server.poll() is None, f"ended with {server.returncode}: {log.read_text(errors='replace')[-800:]}"
        assert not deadline.passed, f"not ready in time: {log.read_text(errors='replace')[-800:]}"
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=10, trust_env=False).status_code == 200:
                return
        pause(0.3, deadline)
