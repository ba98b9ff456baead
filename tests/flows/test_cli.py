"""A command that draws nothing and flows nothing does not pay for what could."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli_files import no_room
from settings.words import ExitCode

HEAVY = {"matplotlib", "numpy", "jinja2", "prefect", "fsspec"}


def test_the_command_line_loads_neither_prefect_nor_what_draws_pages() -> None:
    code = f"import sys, flows.cli; print(sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("columns", ["0", "-1", "many", "", "999999999999"])
def test_a_terminal_of_an_impossible_size_is_still_told(columns: str) -> None:
    ran = _bringup("ladder", "show", "rehearsal-slo", COLUMNS=columns, LINES=columns)
    assert "rehearsal-slo" in ran.stdout
    assert len(ran.stdout) < 10_000


def test_a_variable_that_nobody_reads_is_told_by_every_command_but_help() -> None:
    ran = _bringup("ladder", "check", "rehearsal-slo", BRINGUP_NONSENSE="1")
    assert (ExitCode.BAD_INPUT, "") == (ran.returncode, ran.stdout)
    assert "bringup: environment: BRINGUP_NONSENSE: no setting has this name" in ran.stderr
    assert 1 == len(ran.stderr.splitlines())
    assert 0 == _bringup("ladder", "check", "--help", BRINGUP_NONSENSE="1").returncode


def test_a_full_disk_names_the_folder_what_is_stored_and_what_to_do(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    shutil.copytree(next((Path(__file__).resolve().parents[1] / "records").iterdir()), tmp_path / "run")
    assert str(tmp_path / "run") == no_room(full, tmp_path / "run").filename
    said = no_room(full, tmp_path / "run").strerror
    assert "No space left on device; the record with 6 attempts was stored before and is whole" in str(said)
    assert f"make room there, then go on with `bringup run --resume {tmp_path}/run`" in str(said)
    assert "nothing of the run is stored" in str(no_room(full, tmp_path).strerror)


def _bringup(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("bringup")), *words]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
