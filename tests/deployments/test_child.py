"""Children that start with clean signals and end for certain."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deployments.child import children, end_children, first_to_end, stop
from tasks.deadline import Deadline, pause

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', {child!r}, sys.argv[1]])
child.wait()
while True: time.sleep(0.1)
"""
CLEANS_UP = """
import pathlib, sys, time
from signal import *
out = pathlib.Path(sys.argv[1])
def on(*_):
    out.write_text('cleaned'); sys.exit()
signal(SIGTERM, on)
out.write_text('up')
while True: time.sleep(0.1)
"""
STUBBORN = """
import pathlib, sys, time
from signal import *
signal(SIGTERM, SIG_IGN)
pathlib.Path(sys.argv[1]).write_text('up')
while True: time.sleep(0.1)
"""


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "said"


@pytest.fixture
def family(request: pytest.FixtureRequest, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A parent in a session of its own, whose one child runs the source given."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(child=request.param), str(said)], start_new_session=True
    )
    _until(lambda: said.exists() and said.read_text() == "up")
    yield parent
    os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()


@pytest.mark.parametrize("family", [CLEANS_UP], indirect=True)
def test_children_are_given_the_time_to_clean_up(family: subprocess.Popen[bytes], said: Path) -> None:
    assert 1 == len(children(family.pid))
    end_children(family, Deadline.after(10))
    assert ("cleaned", frozenset(), None) == (said.read_text(), children(family.pid), family.poll())


@pytest.mark.parametrize("family", [STUBBORN], indirect=True)
def test_a_child_that_does_not_end_is_not_waited_for_past_the_deadline(family: subprocess.Popen[bytes]) -> None:
    end_children(family, deadline := Deadline.after(0.5))
    assert (True, 1) == (deadline.passed, len(children(family.pid)))


def test_there_are_no_children_of_the_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert frozenset() == children(process.pid)


def test_the_first_to_end_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as lasting:
        ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
        assert (ended, 7) == (first_to_end(lasting, ended), ended.returncode)
        lasting.kill()


def test_a_child_of_a_background_job_still_ends_by_an_interrupt() -> None:
    """`nohup … &` starts us with SIGINT ignored; what we start must not inherit that."""
    starts = "import subprocess, sys\nfrom deployments.child import take_signals\ntake_signals()\n"
    starts += "print(subprocess.Popen(['sleep', '60'], stdout=-3, stderr=-3).pid)"
    ran = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", starts],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    pid = int(ran.stdout)
    os.kill(pid, signal.SIGINT)
    _until(lambda: not _lives(pid))


def test_stop_ends_one_that_listens_by_an_interrupt() -> None:
    process = subprocess.Popen(["sleep", "60"])
    stop(process)
    assert -signal.SIGINT == process.returncode


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def _until(true: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = Deadline.after(within_s)
    while not true():
        assert not deadline.passed
        pause(0.02, deadline)
