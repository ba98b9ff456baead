"""What a command is on every host, local or remote: how it is bounded in time and in output, and how it is named."""

import re
import shlex
from collections.abc import Mapping, Sequence

from settings.source import BadInput
from settings.target import resolve_path
from tasks.deadline import Deadline
from tasks.host import OUTPUT_LIMIT, DeadlinePassed

__all__ = ["DRAIN_S", "BoundedBytes", "brief", "checked", "timeboxed"]

DRAIN_S = 1.0  # how long output is still read after the exit, when something left behind holds the pipe open

_BRIEF_WORDS, _BRIEF_CHARS = 4, 60


class BoundedBytes:
    """The first OUTPUT_LIMIT bytes of a stream; the rest is taken and dropped, so that the writer never blocks.

    With a `mark` the stream begins behind it: what comes before (a login shell's greeting) is `ahead`.
    """

    def __init__(self, mark: bytes = b"") -> None:
        self._mark, self._kept = mark, bytearray()
        self.begun = not mark
        self.ahead = b""
        self.cut = False

    def take(self, data: bytes) -> None:
        room = OUTPUT_LIMIT - len(self._kept)
        self._kept += data[:room]
        self.cut = self.cut or len(data) > room
        if not self.begun and self._mark in self._kept:
            self.begun = True
            self.ahead, _, rest = bytes(self._kept).partition(self._mark)
            self._kept.clear()
            self.take(rest)

    def text(self) -> str:
        """The bytes as text; what is no UTF-8 shows as U+FFFD."""
        return self._kept.decode("utf-8", "replace")


def brief(argv: Sequence[str]) -> str:
    """The first words of a command, for messages."""
    words = [w if len(w) <= _BRIEF_CHARS else w[:_BRIEF_CHARS] + "…" for w in argv[:_BRIEF_WORDS]]
    return shlex.join(words) + (" …" if len(argv) > _BRIEF_WORDS else "")


def checked(env: Mapping[str, str]) -> dict[str, str]:
    """`env`, when each name is one that a shell can set. Raises: BadInput."""
    for name in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BadInput("env", name, "is no name for an environment variable (letters, digits and _)")
    return dict(env)


def timeboxed(argv: Sequence[str], *, home: str, deadline: Deadline, host: str) -> tuple[str, ...]:
    """`argv` under coreutils' timeout, which ends it on the host by the deadline, whatever becomes of us.

    KILL and not TERM: timeout(1) leaves when its own child has left, and a grandchild that ignores TERM would stay;
    a KILL goes to the whole process group. A command that dies of a signal makes timeout(1) die of the same.
    Raises: DeadlinePassed when no time is left (timeout(1) takes 0 for "no limit").
    """
    if deadline.passed:
        raise DeadlinePassed(f"{host}: `{brief(argv)}` was not started: its deadline had passed")
    return ("timeout", "-s", "KILL", f"{deadline.left_s + 0.001:.3f}", resolve_path(argv[0], home), *argv[1:])
