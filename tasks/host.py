"""The seam to the machine that serves: what a host can do, and the only ways in which it can fail (contracts §6).

    HostError
    ├── HostUnreachable   no connection could be made
    ├── HostKeyRefused    the host's key is unknown or has changed
    ├── HostLost          a connection broke, or its peer went silent
    └── DeadlinePassed    the host lives, but the command did not end in time (it has been ended)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from tasks.deadline import Deadline

__all__ = [
    "OUTPUT_LIMIT",
    "ByteStream",
    "Completed",
    "DeadlinePassed",
    "Host",
    "HostError",
    "HostKeyRefused",
    "HostLost",
    "HostUnreachable",
    "LogChunk",
]

OUTPUT_LIMIT = 8 * 1024 * 1024  # bytes kept of each of stdout and stderr; sglang's argparse dump is 0.1 MB


class HostError(Exception):
    """We cannot tell what the host did. `host`, and what to try next, stand in the message."""


class HostUnreachable(HostError):
    """No connection could be made (refused, no route, no name, authentication failed)."""


class HostKeyRefused(HostError):
    """The host's key is not the one that known_hosts holds; a person has to look."""


class HostLost(HostError):
    """The connection broke in the middle, or the peer went silent. Never a failed command."""


class DeadlinePassed(HostError):
    """The command did not end before its deadline; it was ended on the host too."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ran to its end. `exited` is 0..255, or minus the signal's number."""

    argv: tuple[str, ...]
    exited: int
    out: str
    err: str
    cut: bool = False  # more than OUTPUT_LIMIT bytes came: the rest was dropped


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a file from `offset` on. `size` is the file's size when read, None while there is no such file."""

    data: bytes
    offset: int
    size: int | None

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class ByteStream(Protocol):
    """The part of a socket that HTTP needs; a paramiko Channel and a socket both have it."""

    def send(self, data: bytes, /) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class Host(Protocol):
    """A machine. All methods may be called from several threads; paths may begin with `~` or `$HOME`.

    Raises: HostError from every method, see the tree above.
    """

    name: str   # as people call it, in every message
    home: str   # the home folder there; known once connected

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: Deadline,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Completed:
        """Run a command to its end. `argv[0]` and the target's `python` may begin with `~`; all else is literal."""
        ...

    def read(self, path: str, offset: int, limit: int, *, deadline: Deadline) -> LogChunk:
        """At most `limit` bytes from `offset` on; an absent file gives an empty chunk of size None."""
        ...

    def put(self, content: bytes, path: str, *, deadline: Deadline, mode: int = 0o600) -> None:
        """Write a file in one step: it is either the old or the new one, never half. Makes its folder (0700)."""
        ...

    def open_tcp(self, port: int, *, deadline: Deadline) -> ByteStream:
        """A connection to the host's own loopback port. Raises: ConnectionRefusedError when nothing listens."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
