"""A command on a session channel: how it gets there unseen and literally, and how it is fed, drained and waited for.

The command and its environment travel over stdin: the process list of the host shows a constant `sh -c`, then the
argv, and never a value from the environment. The line that the login shell sees is one quoted word without newline,
`!` or backslash, so that sh, fish and csh read it alike; a mark tells the command's output from the shell's greeting.
"""

import secrets
import select
import shlex
from collections.abc import Mapping, Sequence

import paramiko

from tasks._command import DRAIN_S, BoundedBytes
from tasks._ssh_link import GRACE_S
from tasks.deadline import Deadline

__all__ = ["Script", "pump"]

_PIECE = 64 * 1024
_TICK_S = 0.01  # where paramiko has nothing to wait on: room to send, and output after the exit
_LOOK_S = 0.2   # an exit alone wakes nobody, when something left behind holds the output open


class Script:
    """What sh reads from its stdin before the command does."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        mark = secrets.token_hex(12)
        lines = [f"echo {mark}", f"echo {mark} >&2"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        lines += [f"exec {shlex.join(command)}"]
        self.mark = f"{mark}\n".encode()
        self.text = "\n".join(lines).encode("utf-8", "surrogateescape")
        if b"\0" in self.text:
            raise ValueError("embedded null byte")  # as subprocess says it; sh would drop it silently

    @property
    def line(self) -> str:
        """What the login shell is given. `dd` takes the script's bytes and not one more: the rest is the command's."""
        return f"exec /bin/sh -c 'eval \"$(dd bs={len(self.text)} count=1 iflag=fullblock 2>/dev/null)\"'"


def pump(
    channel: paramiko.Channel, stdin: bytes, out: BoundedBytes, err: BoundedBytes, deadline: Deadline
) -> int | None:
    """Feed and drain the command until its output ends, or DRAIN_S after its exit.

    None when it is not known how it ended: the channel broke, or said nothing until GRACE_S after the deadline.
    """
    sent, patience, drained = 0, Deadline.after(deadline.left_s + GRACE_S), None
    channel.settimeout(GRACE_S)
    ready = select.poll()
    ready.register(channel.fileno(), select.POLLIN)
    while not patience.passed:
        exited = channel.status_event.is_set()  # read before the last look at the buffers: nothing falls between
        over = channel.closed or (exited and channel.eof_received) or (drained is not None and drained.passed)
        while channel.recv_ready():
            out.take(channel.recv(_PIECE))
        while channel.recv_stderr_ready():
            err.take(channel.recv_stderr(_PIECE))
        if over:
            return channel.exit_status if channel.exit_status != -1 else None
        if exited and drained is None:
            drained = Deadline.after(DRAIN_S)
        if sent < len(stdin) and not exited and channel.send_ready():
            try:
                sent += channel.send(stdin[sent:sent + _PIECE])
            except OSError:
                sent = len(stdin)  # closed just now: the command has ended without reading it all
                continue
            if sent == len(stdin):
                channel.shutdown_write()
            continue
        wait_s = min(patience.left_s, _TICK_S if sent < len(stdin) or exited else _LOOK_S)
        if channel.eof_received:  # the descriptor is readable for ever from here on
            channel.status_event.wait(wait_s)
        else:
            ready.poll(wait_s * 1000)
    return None
