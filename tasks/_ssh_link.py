"""One open SSH connection and what may be opened on it; when it breaks, another one takes its place."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import fabric
import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

from tasks.deadline import Deadline, pause
from tasks.host import HostError, HostLost, HostUnreachable

__all__ = ["GRACE_S", "UNNAMED_SIGNAL", "ExactTransport", "Link", "hops"]

GRACE_S = 3.0  # after a deadline, for the host to say how it ended; then it is frozen

UNNAMED_SIGNAL = int(signal.SIGRTMAX)  # sshd names thirteen signals; any other (SIGBUS) it reports without its name

_BUSY_S = 0.05  # between two tries for a session, while too many are open
_STOLEN = 8     # refusals in a row that another thread took


class Link:
    """A connection with its rules: who may open how many channels, and when its peer counts as gone."""

    def __init__(self, who: str, connection: fabric.Connection, beat_s: float) -> None:
        self.who = who
        self.sftp_lock = threading.Lock()
        self.sftp: paramiko.SFTPClient | None = None
        self._transport: paramiko.Transport = connection.transport
        self._connection, self._beat_s = connection, beat_s
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"ssh-beat-{who}", daemon=True).start()

    @property
    def alive(self) -> bool:
        return bool(self._transport.is_active()) and not self._closed.is_set()

    def open_channel(
        self, kind: str, what: str, deadline: Deadline, to: tuple[str, int] | None = None
    ) -> paramiko.Channel:
        """A new channel. Raises: paramiko.ChannelException when the host refuses it; HostLost."""
        source = ("127.0.0.1", 0) if to else None
        for _ in range(_STOLEN):
            try:
                return self._transport.open_channel(kind, to, source, timeout=deadline.left_s + GRACE_S)
            except paramiko.ChannelException:
                raise
            except (paramiko.SSHException, OSError, EOFError) as e:
                if not self.alive or "Unable to open" not in str(e):
                    raise self.lost(what, e) from e
                # paramiko keeps the last refusal for all threads, and another one has taken ours: ask again
        raise paramiko.ChannelException(2, "refused")

    def open_session(self, what: str, deadline: Deadline) -> paramiko.Channel:
        """A session channel, of which a server has few (MaxSessions): try until the deadline.

        Raises: HostUnreachable when it never opens one; HostLost.
        """
        while True:
            try:
                return self.open_channel("session", what, deadline)
            except paramiko.ChannelException as e:
                if deadline.passed:
                    raise HostUnreachable(
                        f"{self.who}: {what} was not started: the SSH server opens no further session ({e.text}); "
                        f"see `MaxSessions` in its sshd_config"
                    ) from e
                pause(_BUSY_S, deadline)

    def open_sftp(self, what: str, deadline: Deadline) -> paramiko.SFTPClient:
        """The connection's one SFTP session; the caller holds `sftp_lock` (paramiko's client is for one thread).

        Raises: HostError when the server has no SFTP; HostLost.
        """
        if self.sftp is None:
            channel = self.open_session(what, deadline)
            try:
                channel.invoke_subsystem("sftp")
                self.sftp = paramiko.SFTPClient(channel)
            except (paramiko.SSHException, EOFError) as e:
                channel.close()
                if not self.alive:
                    raise self.lost(what, e) from e
                raise HostError(
                    f"{self.who}: the SSH server offers no SFTP ({e}): add `Subsystem sftp internal-sftp` to its "
                    f"sshd_config, and reload it; with an external sftp-server the login shell must print nothing"
                ) from e
        return self.sftp

    @contextlib.contextmanager
    def closed_after(self, seconds: float) -> Iterator[None]:
        """Close the connection when this takes longer: not all waits of paramiko take a time-out."""
        silence = threading.Timer(seconds, self.close)
        silence.daemon = True
        silence.start()
        try:
            yield
        finally:
            silence.cancel()

    def lost(self, what: str, cause: BaseException | None = None) -> HostLost:
        """The exception to raise when `what` was interrupted. Closes the connection: nobody shall wait on it again."""
        self.close()
        why = f" ({cause})" if cause and str(cause) else ""
        return HostLost(f"{self.who}: connection lost during {what}{why}; the next call opens a new one")

    def close(self) -> None:
        self._closed.set()
        for hop in hops(self._connection):
            hop.client.close()

    def _watch(self) -> None:
        """Close the connection when its peer no longer answers; paramiko's keepalive does not ask for an answer."""
        while not self._closed.wait(self._beat_s) and self._transport.is_active():
            with self.closed_after(1.5 * self._beat_s):
                self._transport.global_request("keepalive@openssh.com", wait=True)


def hops(connection: fabric.Connection) -> Iterator[fabric.Connection]:
    """The connection itself, then its jump hosts from the nearest to the farthest."""
    while isinstance(connection, fabric.Connection):
        yield connection
        connection = connection.gateway


_REQUESTS = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined]


def _on_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """paramiko drops "exit-signal" (RFC 4254 §6.10); here it becomes a negative exit status, as subprocess has it."""
    if message.get_text() == "exit-signal":
        message.get_boolean()
        name = "SIG" + message.get_text()
        channel.exit_status = -int(signal.Signals.__members__.get(name, UNNAMED_SIGNAL))
        channel.status_event.set()
        return
    message.rewind()
    message.get_int()  # the channel's number, which the transport had read
    _REQUESTS[MSG_CHANNEL_REQUEST](channel, message)


class ExactTransport(paramiko.Transport):
    """A transport that knows which signal ended a command."""

    _channel_handler_table = {**_REQUESTS, MSG_CHANNEL_REQUEST: _on_request}
