"""One open SSH connection: fabric reads the configuration and opens it, the rules on host keys and silence are ours."""

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

from settings.target import Target
from tasks.deadline import Deadline
from tasks.host import HostError, HostLost, HostUnreachable
from tasks.known_hosts import check_key, known_keys

__all__ = ["Link", "open_link"]

UNNAMED_SIGNAL = int(signal.SIGRTMAX)  # sshd names thirteen signals; all others (SIGBUS) it reports without a name

_OPEN_S = 10.0      # for each of connect, banner, authentication and the jump host's channel
_SESSIONS = 8       # sshd's MaxSessions is 10 by default, and SFTP holds one

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # our exceptions say what it would log with a traceback


class Link:
    """A connection with what belongs to it; when it breaks, a new Link takes its place."""

    def __init__(self, who: str, connection: fabric.Connection, beat_s: float) -> None:
        self.who = who
        self.transport: paramiko.Transport = connection.transport
        self.sessions = threading.BoundedSemaphore(_SESSIONS)
        self.sftp_lock = threading.Lock()
        self.sftp: paramiko.SFTPClient | None = None
        self._connection, self._beat_s = connection, beat_s
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"ssh-beat-{who}", daemon=True).start()

    @property
    def alive(self) -> bool:
        return self.transport.is_active() and not self._closed.is_set()

    def lost(self, what: str, cause: BaseException | None = None) -> HostLost:
        """The exception to raise when `what` was interrupted. Closes the connection: nobody shall wait on it again."""
        self.close()
        why = f" ({cause})" if cause and str(cause) else ""
        return HostLost(f"{self.who}: connection lost during {what}{why}; the next call opens a new one")

    def close(self) -> None:
        self._closed.set()
        self.transport.close()
        for hop in _hops(self._connection):
            hop.client.close()

    def _watch(self) -> None:
        """Close the connection when its peer no longer answers; paramiko's keepalive does not ask for an answer."""
        while not self._closed.wait(self._beat_s) and self.transport.is_active():
            silence = threading.Timer(1.5 * self._beat_s, self.close)
            silence.daemon = True
            silence.start()
            try:
                self.transport.global_request("keepalive@openssh.com", wait=True)
            finally:
                silence.cancel()


def open_link(target: Target, deadline: Deadline, beat_s: float) -> Link:
    """A connection to the target, through its jump hosts, each with a key that known_hosts holds.

    Raises: HostUnreachable, HostKeyRefused.
    """
    if target.identity_file and not Path(_expand(target.identity_file)).is_file():
        raise HostUnreachable(f"{target.name}: the identity_file {target.identity_file} does not exist on this machine")
    step_s = max(1.0, min(_OPEN_S, deadline.left_s))
    with _errors_of(target):
        connection = _connection(target, step_s)
    for hop in _hops(connection):
        _be_strict(hop, target, step_s)
    try:
        with _errors_of(target, connection):
            connection.open()
    except HostError:
        for hop in _hops(connection):
            hop.client.close()
        raise
    return Link(target.name, connection, beat_s)


def _connection(target: Target, step_s: float) -> fabric.Connection:
    config = fabric.Config(runtime_ssh_path=_expand(target.ssh_config) if target.ssh_config else None)
    options = config.base_ssh_config.lookup(target.host)
    return fabric.Connection(
        target.host,
        user=target.user,
        port=target.port,
        config=config,
        gateway=False if options.get("proxyjump", "").lower() == "none" else None,
        connect_timeout=int(min(step_s, float(options.get("connecttimeout", step_s)))),
        connect_kwargs={"key_filename": [_expand(target.identity_file)]} if target.identity_file else None,
    )


def _hops(connection: fabric.Connection) -> Iterator[fabric.Connection]:
    """The connection itself, then its jump hosts from the nearest to the farthest."""
    while isinstance(connection, fabric.Connection):
        yield connection
        connection = connection.gateway


def _be_strict(hop: fabric.Connection, target: Target, step_s: float) -> None:
    """Refuse all keys but known ones (StrictHostKeyChecking of ssh_config is void); wait for nothing for long."""
    options = hop.ssh_config
    host, port = options.get("hostkeyalias", hop.host), 22 if "hostkeyalias" in options else hop.port
    files = _known_hosts_files(target, options)
    known = known_keys(files, host, port)
    kinds = {k.kind for k in known}

    class Strict(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
            del client, hostname
            check_key(key, known, files, who=target.name, host=host, port=port)

    def transport(sock: Any, **options: Any) -> paramiko.Transport:
        if isinstance(sock, socket.socket):  # else each call waits 40 ms for a delayed ACK (measured)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = _Transport(sock, **options)
        security = made.get_security_options()
        security.key_types = sorted(security.key_types, key=lambda k: ("ssh-rsa" if "rsa" in k else k) not in kinds)
        return made

    hop.client.set_missing_host_key_policy(Strict())
    keys = [k for k in dict.fromkeys(hop.connect_kwargs.get("key_filename", ())) if Path(k).is_file()]
    only = options.get("identitiesonly", "no").lower() == "yes"
    hop.connect_timeout = hop.connect_timeout or int(step_s)
    hop.connect_kwargs = {
        **hop.connect_kwargs, "key_filename": keys, "transport_factory": transport,
        "banner_timeout": step_s, "auth_timeout": step_s, "channel_timeout": step_s,
        "allow_agent": not only, "look_for_keys": not only,
    }


def _known_hosts_files(target: Target, options: dict[str, str]) -> tuple[Path, ...]:
    if target.known_hosts_file:
        return (Path(_expand(target.known_hosts_file)),)
    mine = options.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2").split()
    all_ = options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2").split()
    return tuple(Path(_expand(f.strip('"'))) for f in mine + all_)


def _expand(path: str) -> str:
    return str(Path(path).expanduser())


@contextlib.contextmanager
def _errors_of(target: Target, connection: fabric.Connection | None = None) -> Iterator[None]:
    """Say which host, which user, and what to try, for each way in which opening fails."""
    who = f"{target.name}: {connection.user}@{connection.host}:{connection.port}" if connection else target.name
    try:
        yield
    except paramiko.PasswordRequiredException as e:
        raise HostUnreachable(f"{who}: the private key has a passphrase; load it with `ssh-add`") from e
    except paramiko.AuthenticationException as e:
        raise HostUnreachable(f"{who}: authentication failed ({e}); {_try_ssh(connection)}") from e
    except paramiko.ChannelException as e:
        raise HostUnreachable(f"{who}: the jump host opens no connection to it ({e.text})") from e
    except socket.gaierror as e:
        raise HostUnreachable(f"{who}: the name is not known ({e.strerror}); see `host` of the target") from e
    except (TimeoutError, paramiko.SSHException, EOFError) as e:
        if "authentication" in str(e).lower():
            raise HostUnreachable(f"{who}: authentication failed ({e}); {_try_ssh(connection)}") from e
        raise HostUnreachable(f"{who}: does not answer as an SSH server ({e or type(e).__name__}); "
                              f"{_try_ssh(connection)}") from e
    except OSError as e:
        raise HostUnreachable(f"{who}: no connection ({e.strerror or e}); {_try_ssh(connection)}") from e


def _try_ssh(connection: fabric.Connection | None) -> str:
    if connection is None:
        return "see `ssh_config` of the target"
    keys = connection.connect_kwargs.get("key_filename") or ["agent and ~/.ssh"]
    return (f"tried keys: {', '.join(keys)}; try `ssh -v -p {connection.port} {connection.user}@{connection.host}`")


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


class _Transport(paramiko.Transport):
    _channel_handler_table = {**_REQUESTS, MSG_CHANNEL_REQUEST: _on_request}
