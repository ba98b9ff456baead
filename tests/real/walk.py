"""Walks a ladder of this folder on the real SGLang through the command line, and looks at the host afterwards."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from settings.words import ExitCode
from tasks.pure.record import RunRecord
from tests.ports import free_port

__all__ = ["assert_host_is_empty", "bring_up"]

HERE = Path(__file__).parent
_PORT = "31_007"  # as the ladders write it; each walk takes one that is free


def bring_up(
    target: Path, ladder: str, tmp_path: Path, *, ends: ExitCode = ExitCode.SERVING
) -> tuple[RunRecord, Path]:
    """The record that the command prints, and the run folder; both say the same."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("bringup"), "run", "--target", target,
            "--ladder", _written(ladder, tmp_path), "--runs", tmp_path / "runs", "--json",
        ],
        env={**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}, cwd=tmp_path,
        capture_output=True, text=True, timeout=1_500, check=False,
    )
    assert done.returncode == ends, f"exit {done.returncode}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    printed = RunRecord.model_validate_json(done.stdout)
    (folder,) = (tmp_path / "runs").iterdir()
    assert printed == RunRecord.model_validate_json((folder / "record.json").read_text())
    return printed, folder


def _written(ladder: str, tmp_path: Path) -> Path:
    """The ladder with its suites beside it: paths in it are meant from the folder in which one stands."""
    folder = tmp_path / "declared"
    folder.mkdir()
    for file in (HERE / "ladders" / f"{ladder}.toml", *(HERE / "suites").glob("*.toml")):
        text = file.read_text().replace("{suites}", str(folder)).replace(_PORT, str(free_port()))
        (folder / file.name).write_text(text)
    return folder / f"{ladder}.toml"


def assert_host_is_empty(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert not (state / "lock").exists()
    launched = [json.loads(path.read_text()) for path in state.glob("attempts/*/started")]
    assert launched, "no attempt was launched"
    assert [] == list(_living_in({server["pid"] for server in launched}))
    for port in {server["port"] for server in launched if server["port"]}:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"something still listens on {port}"


def _living_in(sessions: set[int]) -> Iterator[str]:
    """What still runs in these sessions. A real scheduler writes its title over its environment: no mark would do."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid_and_name, _, rest = stat.read_text().rpartition(")")
            state, _, _, session = rest.split()[:4]
            if int(session) in sessions and state not in "ZX":  # dead, and only not yet waited for
                yield f"{pid_and_name}) in state {state}"
