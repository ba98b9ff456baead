"""A host behind SSH. fabric configures and opens the connection; commands, files and ports run on its transport.

fabric's own run() gives -1 for a lost connection, lets a timed-out command run on, and waits for ever on a frozen peer.
"""

import contextlib
import errno
import posixpath
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import paramiko
from tenacity import Retrying, retry_if_exception_type

from settings.target import Target, resolve_path
from tasks._command import BoundedBytes, brief, checked, timeboxed
from tasks._ssh_exec import Script, pump
from tasks._ssh_link import GRACE_S, Link
from tasks._ssh_open import open_connection
from tasks.deadline import Deadline
from tasks.host import ByteStream, Completed, DeadlinePassed, HostError, HostLost, HostUnreachable, LogChunk

__all__ = ["SshHost"]

T = TypeVar("T")

_SESSIONS = 8  # sshd's MaxSessions is 10 by default, and SFTP holds one
_FILE_PIECE = 32 * 1024  # what every SFTP server gives in one reply


class SshHost:
    """The target behind SSH. Connects at once, and again at the next call after a loss.

    A peer that gives no sign of life for 2.5 times `beat_s` counts as lost, however far a deadline is.
    Raises: HostUnreachable, HostKeyRefused.
    """

    def __init__(self, target: Target, *, deadline: Deadline, beat_s: float = 10.0) -> None:
        self.name = target.name
        self.home = "~"
        self._target, self._beat_s = target, beat_s
        self._env: dict[str, str] = {}
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_SESSIONS)
        self._link: Link | None = None
        self._closed = False
        try:
            self.home = self.run(["sh", "-c", 'printf %s "$HOME"'], deadline=deadline).out
        except BaseException:
            self.close()
            raise
        self._env = {k: resolve_path(v, self.home) for k, v in checked(target.plain_env()).items()}

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: Deadline,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Completed:
        """See Host.run. A connection that breaks after the command was sent is HostLost: it may have run."""
        what = _named(f"`{brief(argv)}`", deadline)
        command = timeboxed(argv, home=self.home, deadline=deadline, host=self.name)
        script = Script(command, {**self._env, **checked(env or {})})
        out, err = BoundedBytes(script.mark), BoundedBytes(script.mark)
        with self._session(what, deadline) as (link, channel), link.closed_after(deadline.left_s + GRACE_S):
            try:
                channel.exec_command(script.line)
                exited = pump(channel, script.text + stdin, out, err, deadline)
            except (OSError, EOFError, paramiko.SSHException) as e:
                raise link.lost(what, e) from e
            if exited is None or not (link.alive or channel.eof_received):
                raise link.lost(what)
        if not out.begun:
            said = (out.text() + err.text()).strip()[:200]
            raise HostUnreachable(f"{self.name}: the login shell runs no commands (exit {exited}): {said!r}")
        if exited < 0 and deadline.passed:
            raise DeadlinePassed(f"{self.name}: {what} did not end before it and was killed")
        return Completed(tuple(argv), exited, out.text(), err.text(), out.cut or err.cut)

    def read(self, path: str, offset: int, limit: int, *, deadline: Deadline) -> LogChunk:
        """See Host.read. Tried once more on a new connection when the first one breaks."""
        name = resolve_path(path, self.home)

        def read(sftp: paramiko.SFTPClient) -> LogChunk:
            try:
                with sftp.open(name, "rb") as file:
                    size = file.stat().st_size or 0
                    file.seek(offset)
                    wanted, data = min(limit, size - offset), bytearray()
                    while len(data) < wanted and not deadline.passed:
                        piece = file.read(min(_FILE_PIECE, wanted - len(data)))
                        if not piece:  # cut since we asked for its size
                            break
                        data += piece
                    return LogChunk(bytes(data), offset, size)
            except FileNotFoundError:
                return LogChunk(b"", offset, None)

        return self._with_files(_named(f"read of {path}", deadline), read, deadline)

    def put(self, content: bytes, path: str, *, deadline: Deadline, mode: int = 0o600) -> None:
        """See Host.put. Tried once more on a new connection when the first one breaks."""
        name = resolve_path(path, self.home)

        def put(sftp: paramiko.SFTPClient) -> None:
            _make_folder(sftp, posixpath.dirname(name))
            temporary = posixpath.join(posixpath.dirname(name), f".{posixpath.basename(name)}.{secrets.token_hex(6)}")
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

        self._with_files(_named(f"write of {path}", deadline), put, deadline)

    def open_tcp(self, port: int, *, deadline: Deadline) -> ByteStream:
        """See Host.open_tcp. A `direct-tcpip` channel: no listener here, and no limit but the transport's."""
        what = _named(f"connection to port {port}", deadline)
        to = ("127.0.0.1", port)

        def once() -> tuple[Link, paramiko.Channel]:
            link = self._live(deadline)
            return link, link.open_channel("direct-tcpip", what, deadline, to)

        try:
            link, channel = _twice(once, deadline)
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
            self._link, self._closed = None, True

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
            if self._closed:
                raise HostUnreachable(f"{self.name}: the connection was closed by us, for good")
            if self._link is None or not self._link.alive:
                if self._link:
                    self._link.close()
                self._link = None
                self._link = Link(self.name, open_connection(self._target, deadline), self._beat_s)
            return self._link
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _session(self, what: str, deadline: Deadline) -> Iterator[tuple[Link, paramiko.Channel]]:
        """A session channel, on a new connection when the old one turns out to be dead: nothing was sent on it yet."""
        if not self._slots.acquire(timeout=deadline.left_s):
            raise DeadlinePassed(f"{self.name}: {what} was not started: all sessions were busy until its deadline")

        def once() -> tuple[Link, paramiko.Channel]:
            link = self._live(deadline)
            return link, link.open_session(what, deadline)

        try:
            link, channel = _twice(once, deadline)
            try:
                yield link, channel
            finally:
                with contextlib.suppress(EOFError):
                    channel.close()
        finally:
            self._slots.release()

    def _with_files(self, what: str, act: Callable[[paramiko.SFTPClient], T], deadline: Deadline) -> T:
        def once() -> T:
            link = self._live(deadline)
            if not link.sftp_lock.acquire(timeout=deadline.left_s):
                raise DeadlinePassed(f"{self.name}: {what} did not begin before its deadline")
            try:
                with link.closed_after(deadline.left_s + GRACE_S):
                    sftp = link.open_sftp(what, deadline)
                    try:
                        return act(sftp)
                    except (EOFError, paramiko.SSHException) as e:
                        raise link.lost(what, e) from e
                    except OSError as e:
                        if not link.alive or sftp.sock.closed:
                            raise link.lost(what, e) from e
                        raise HostError(f"{self.name}: {what}: {e.strerror or f'{e} (a folder? no space?)'}") from e
            finally:
                link.sftp_lock.release()

        return _twice(once, deadline)


class _Stream:
    """A channel as a socket. paramiko shows a lost connection as the end of the stream: a reply cut short."""

    def __init__(self, link: Link, channel: paramiko.Channel, what: str) -> None:
        self._link, self._channel, self._what = link, channel, what

    def send(self, data: bytes, /) -> int:
        try:
            return self._channel.send(data)
        except TimeoutError:
            raise
        except EOFError as e:  # paramiko's, of a connection that breaks while a message goes out
            raise self._link.lost(self._what, e) from e
        except OSError as e:
            if not self._link.alive:
                raise self._link.lost(self._what, e) from e
            raise BrokenPipeError(errno.EPIPE, str(e)) from e

    def recv(self, size: int, /) -> bytes:
        try:
            data = self._channel.recv(size)
        except EOFError as e:  # it tells the other side that it has room again
            raise self._link.lost(self._what, e) from e
        if not data and not self._link.alive:
            raise self._link.lost(self._what)
        return data

    def settimeout(self, seconds: float | None, /) -> None:
        self._channel.settimeout(seconds)

    def close(self) -> None:
        with contextlib.suppress(EOFError):
            self._channel.close()


def _named(what: str, deadline: Deadline) -> str:
    return f"{what} (deadline {deadline.left_s:.1f} s)"


def _twice(act: Callable[[], T], deadline: Deadline) -> T:
    """`act`, once more when the connection broke and there is time left. For what may be done twice."""
    return Retrying(
        retry=retry_if_exception_type(HostLost),
        stop=lambda tried: tried.attempt_number == 2 or deadline.passed,
        reraise=True,
    )(act)


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
