"""Names and ends of processes: titles as setproctitle gives them, and the tree that dies together."""

import ctypes
import os
import signal
from collections.abc import Iterable

from sglang._log import log

__all__ = ["become", "kill_tree"]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def become(title: str, parent: int) -> None:
    """Show as `title` in the process list, and die with the parent."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, title.encode(), 0, 0, 0)
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: fields 48 and 49 of the whole line
    if 0 < start < end:
        text = title.encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def kill_tree(children: Iterable[int], *, itself: bool) -> None:
    """SIGKILL for the children, and for this process too, as SGLang ends itself: exit status 137."""
    me = os.getpid()
    log(f"kill_process_tree called: parent_pid={me}, include_parent={itself}, pid={me}")
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if itself:
        os.kill(me, signal.SIGKILL)
