"""A Prefect command as a child process that starts with clean signals and can be ended for certain."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tasks.deadline import Deadline, pause

__all__ = ["children", "end_children", "first_to_end", "start", "stop", "take_signals"]

_STOP_S = 15.0


def take_signals() -> None:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt here, and mean their default in each child.

    A shell starts `… &` with SIGINT ignored, and children inherit that: such a Prefect worker never stops, since what
    it does on SIGTERM is to send itself a SIGINT.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def start(env: Mapping[str, str], *words: str) -> subprocess.Popen[bytes]:
    """`prefect <words>` in a session of its own, so that Ctrl-C reaches us alone and we choose the order of the end."""
    return subprocess.Popen([sys.executable, "-m", "prefect", *words], env=dict(env), start_new_session=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, and SIGKILL for one that does not end by it."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_children(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    """SIGTERM to the direct children of `process`, and time for them to end."""
    for pid in children(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while children(process.pid) and not deadline.passed:
        pause(0.2, deadline)


def children(pid: int) -> frozenset[int]:
    """Direct children, of whichever thread; none where there is no /proc."""
    found: set[int] = set()
    for of_thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):   # a thread may end while we read
            found.update(map(int, of_thread.read_text().split()))
    return frozenset(found)


def first_to_end(*processes: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """The first of them that ends by itself; waits for it."""
    while True:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                return process
