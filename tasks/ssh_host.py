"""A host behind SSH. fabric configures and opens the connection; commands, files and ports run on its transport.

fabric's own run() gives -1 for a lost connection, lets a timed-out command run on, and waits for ever on a frozen peer.

A command and its environment travel over stdin: the process list of the host shows a constant `sh -c`, then the argv,
and never a secret from `env`. The line that the login shell sees has one quoted word without newline, `!` or backslash,
so that sh, fish and csh read it alike; and a mark tells our output from the greeting of a login shell.
"""

import contextlib
import errno
import posixpath
import secrets
import select
import shlex
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import paramiko
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from settings.target import Target, resolve_path
from tasks._command import DRAIN_S, BoundedBytes, brief, timeboxed
from tasks._ssh_link import Link, open_link
from tasks.deadline import Deadline, pause
from tasks.host import ByteStream, Completed, DeadlinePassed, HostError, HostLost, HostUnreachable, LogChunk

__all__ = ["SshHost"]

T = TypeVar("T")

_GRACE_S = 3.0      # after the deadline, for the host to say that it killed the command; then it is frozen
_PIECE = 64 * 1024
_FILE_PIECE = 32 * 1024  # what every SFTP server gives in one reply
_TICK_S = 0.01      # where paramiko has nothing to wait on: room to send, and output after the exit
_LOOK_S = 0.2       # an exit alone wakes nobody, when something left behind holds the output open
_BUSY_S = 0.05      # between two tries for a session, while MaxSessions are open


class SshHost:
    """The target behind SSH. Connects at once, and again at the next call after a loss.

    A peer that gives no sign of life for 2.5 times `beat_s` counts as lost, however far the deadline of a call is.
    Raises: HostUnreachable, HostKeyRefused.
    """

    def __init__(self, target: Target, *, deadline: Deadline, beat_s: float = 10.0) -> None:
        self.name = target.name
        self.home = "~"
        self._target, self._beat_s = target, beat_s
        self._env: dict[str, str] = {}
        self._lock = threading.Lock()
        self._link: Link | None = None
        self.home = self.run(["sh", "-c", 'printf %s "$HOME"'], deadline=deadline).out
        self._env = {k: resolve_path(v, self.home) for k, v in target.plain_env().items()}

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: Deadline,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Completed:
        """See Host.run. A connection that breaks after the command was sent is HostLost: it may have run."""
        what = f"`{brief(argv)}` ({deadline.left_s:.1f} s left)"
        command = timeboxed(argv, home=self.home, deadline=deadline, host=self.name)
        script, mark = _script(command, {**self._env, **(env or {})})
        with self._session(what, deadline) as (link, channel):
            out, err = BoundedBytes(mark), BoundedBytes(mark)
            try:
                channel.exec_command(f"exec /bin/sh -c 'eval \"$(dd bs={len(script)} count=1 iflag=fullblock 2>/dev/null)\"'")
                exited = _pump(channel, script + stdin, out, err, deadline)
            except (OSError, EOFError, paramiko.SSHException) as e:
                raise link.lost(what, e) from e
            if exited is None:
                raise link.lost(what)
        if not out.begun:
            said = (out.text() + err.text()).strip()[:200]
            raise HostUnreachable(f"{self.name}: the login shell runs no commands (exit {exited}): {said!r}")
        if exited < 0 and deadline.passed:
            raise DeadlinePassed(f"{self.name}: {what} did not end before its deadline and was killed")
        return Completed(tuple(argv), exited, out.text(), err.text(), out.cut or err.cut)

    def read(self, path: str, offset: int, limit: int, *, deadline: Deadline) -> LogChunk:
        """See Host.read. Tried once more on a new connection when the first one breaks."""
        name = resolve_path(path, self.home)

        def read(sftp: paramiko.SFTPClient) -> LogChunk:
            try:
                with sftp.open(name, "rb") as file:
                    size = file.stat().st_size or 0
                    file.seek(offset)
                    data = bytearray()
                    while len(data) < limit and not deadline.passed:
                        piece = file.read(min(_FILE_PIECE, limit - len(data)))
                        if not piece:
                            break
                        data += piece
                    return LogChunk(bytes(data), offset, max(size, offset + len(data) if data else 0))
            except FileNotFoundError:
                return LogChunk(b"", offset, None)

        return self._with_files(f"read of {path}", read, deadline)

    def put(self, content: bytes, path: str, *, deadline: Deadline, mode: int = 0o600) -> None:
        """See Host.put. Tried once more on a new connection when the first one breaks."""
        name = resolve_path(path, self.home)

        def put(sftp: paramiko.SFTPClient) -> None:
            _make_folder(sftp, posixpath.dirname(name))
            temporary = f"{name}.{secrets.token_hex(6)}"
            try:
                with sftp.open(temporary, "wbx") as file:
                    file.chmod(mode)
                    for at in range(0, len(content), _FILE_PIECE):
                        if deadline.passed:
                            raise DeadlinePassed(f"{self.name}: {path} was not written before the deadline")
                        file.write(content[at:at + _FILE_PIECE])
                sftp.posix_rename(temporary, name)
            except (OSError, HostError):
                with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                    sftp.remove(temporary)
                raise

        self._with_files(f"write of {path}", put, deadline)

    def open_tcp(self, port: int, *, deadline: Deadline) -> ByteStream:
        """See Host.open_tcp. A `direct-tcpip` channel: no listener here, and no limit but the transport's."""
        what = f"connection to port {port}"
        try:
            link, channel = self._open("direct-tcpip", what, deadline, ("127.0.0.1", port))
        except paramiko.ChannelException as e:
            if e.code == 1:
                raise HostError(
                    f"{self.name}: the SSH server forbids {what}: set `AllowTcpForwarding yes` (or `local`), and no "
                    f"`PermitOpen` against 127.0.0.1:{port}, in its sshd_config, and reload it"
                ) from e
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{self.name}: nothing listens on port {port}") from e
        return _Stream(link, channel, what)

    def close(self) -> None:
        with self._lock:
            if self._link:
                self._link.close()
            self._link = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _live(self, deadline: Deadline) -> Link:
        """The open connection, or a new one in its place."""
        if not self._lock.acquire(timeout=deadline.left_s):
            raise HostUnreachable(f"{self.name}: another call was still connecting at this one's deadline")
        try:
            if self._link is None or not self._link.alive:
                if self._link:
                    self._link.close()
                self._link = None
                self._link = open_link(self._target, deadline, self._beat_s)
            return self._link
        finally:
            self._lock.release()

    def _open(self, kind: str, what: str, deadline: Deadline, to: tuple[str, int] | None = None) -> tuple[
        Link, paramiko.Channel
    ]:
        """A new channel, on a new connection when the old one turns out to be dead: nothing was sent on it yet.

        Raises: HostLost; paramiko.ChannelException when the host refuses the channel.
        """
        def once() -> tuple[Link, paramiko.Channel]:
            link = self._live(deadline)
            try:
                source = ("127.0.0.1", 0) if to else None
                return link, link.transport.open_channel(kind, to, source, timeout=deadline.left_s + _GRACE_S)
            except paramiko.ChannelException:
                raise
            except (paramiko.SSHException, OSError, EOFError) as e:
                raise link.lost(what, e) from e

        return _twice(once, deadline)

    @contextlib.contextmanager
    def _session(self, what: str, deadline: Deadline) -> Iterator[tuple[Link, paramiko.Channel]]:
        """A session channel, of which a server has few (MaxSessions): wait for one until the deadline."""
        slots = self._live(deadline).sessions
        if not slots.acquire(timeout=deadline.left_s):
            raise DeadlinePassed(f"{self.name}: {what} was not started: all sessions were busy until its deadline")
        try:
            link, channel = self._patiently(what, deadline)
            with contextlib.closing(channel):
                yield link, channel
        finally:
            slots.release()

    def _patiently(self, what: str, deadline: Deadline) -> tuple[Link, paramiko.Channel]:
        while True:
            try:
                return self._open("session", what, deadline)
            except paramiko.ChannelException as e:
                if deadline.passed:
                    raise HostUnreachable(
                        f"{self.name}: {what} was not started: the SSH server opens no further session ({e.text}); "
                        f"see `MaxSessions` in its sshd_config"
                    ) from e
                pause(_BUSY_S, deadline)

    def _with_files(self, what: str, act: Callable[[paramiko.SFTPClient], T], deadline: Deadline) -> T:
        """`act` on the connection's one SFTP session (paramiko's client is not made for several threads at once)."""
        def once() -> T:
            link = self._live(deadline)
            if not link.sftp_lock.acquire(timeout=deadline.left_s):
                raise DeadlinePassed(f"{self.name}: {what} did not begin before its deadline")
            try:
                link.sftp = link.sftp or self._open_sftp(link, deadline)
                channel = link.sftp.get_channel()
                assert channel is not None
                channel.settimeout(deadline.left_s + _GRACE_S)
                return act(link.sftp)
            except (TimeoutError, EOFError, paramiko.SSHException) as e:
                raise link.lost(what, e) from e
            except OSError as e:
                if not link.alive or link.sftp is None or link.sftp.sock.closed:
                    raise link.lost(what, e) from e
                raise HostError(f"{self.name}: {what}: {e.strerror or f'{e} (a folder? no space?)'}") from e
            finally:
                link.sftp_lock.release()

        return _twice(once, deadline)

    def _open_sftp(self, link: Link, deadline: Deadline) -> paramiko.SFTPClient:
        channel = link.transport.open_session(timeout=deadline.left_s + _GRACE_S)
        channel.settimeout(deadline.left_s + _GRACE_S)
        try:
            channel.invoke_subsystem("sftp")
            return paramiko.SFTPClient(channel)
        except (paramiko.SSHException, EOFError) as e:
            channel.close()
            if not link.alive:
                raise
            raise HostError(
                f"{self.name}: the SSH server offers no SFTP ({e}): add `Subsystem sftp internal-sftp` to its "
                f"sshd_config, and reload it; with an external sftp-server the login shell must print nothing"
            ) from e


class _Stream:
    """A channel as a socket. paramiko shows a lost connection as the end of the stream: a reply cut short."""

    def __init__(self, link: Link, channel: paramiko.Channel, what: str) -> None:
        self._link, self._channel, self._what = link, channel, what

    def send(self, data: bytes, /) -> int:
        try:
            return self._channel.send(data)
        except TimeoutError:
            raise
        except OSError as e:
            if not self._link.alive:
                raise self._link.lost(self._what, e) from e
            raise BrokenPipeError(errno.EPIPE, str(e)) from e

    def recv(self, size: int, /) -> bytes:
        data = self._channel.recv(size)
        if not data and not self._link.alive:
            raise self._link.lost(self._what)
        return data

    def settimeout(self, seconds: float | None, /) -> None:
        self._channel.settimeout(seconds)

    def close(self) -> None:
        self._channel.close()


def _twice(act: Callable[[], T], deadline: Deadline) -> T:
    """`act`, once more when the connection broke and there is time left. For what may be done twice."""
    for attempt in Retrying(
        retry=retry_if_exception_type(HostLost),
        stop=stop_after_attempt(2) | (lambda _: deadline.passed),  # type: ignore[operator]
        reraise=True,
    ):
        with attempt:
            return act()
    raise AssertionError  # Retrying returns, or raises what act raised


def _script(command: Sequence[str], env: Mapping[str, str]) -> tuple[bytes, bytes]:
    """What sh is to run, and the mark that stands before the command's own output."""
    mark = secrets.token_hex(12)
    lines = [f"echo {mark}", f"echo {mark} >&2"]
    lines += [f"export {shlex.quote(name)}={shlex.quote(value)}" for name, value in env.items()]
    lines += [f"exec {shlex.join(command)}"]
    return "\n".join(lines).encode("utf-8", "surrogateescape"), f"{mark}\n".encode()


def _pump(
    channel: paramiko.Channel, stdin: bytes, out: BoundedBytes, err: BoundedBytes, deadline: Deadline
) -> int | None:
    """Feed and drain the command until its output ends, or DRAIN_S after its exit. None: how it ended is not known."""
    sent, patience, drained = 0, Deadline.after(deadline.left_s + _GRACE_S), None
    channel.settimeout(_GRACE_S)
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
            sent += channel.send(stdin[sent:sent + _PIECE])
            if sent == len(stdin):
                channel.shutdown_write()
            continue
        wait_s = min(patience.left_s, _TICK_S if sent < len(stdin) or exited else _LOOK_S)
        if channel.eof_received:  # the descriptor is readable for ever from here on
            channel.status_event.wait(wait_s)
        else:
            ready.poll(wait_s * 1000)
    return None


def _make_folder(sftp: paramiko.SFTPClient, folder: str) -> None:
    """mkdir -p with 0700 for each folder that is made."""
    try:
        if stat.S_ISDIR(sftp.stat(folder or ".").st_mode or 0):
            return
    except FileNotFoundError:
        _make_folder(sftp, posixpath.dirname(folder))
    try:
        sftp.mkdir(folder, 0o700)
    except OSError:
        sftp.stat(folder)  # another one made it at the same time; else this says what is wrong
