"""Opening an SSH connection: fabric reads the configuration and connects, the rules on keys and waiting are ours."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fabric
import paramiko

from settings.source import BadInput
from settings.target import Target
from tasks._ssh_link import ExactTransport, hops
from tasks.deadline import Deadline
from tasks.host import HostError, HostUnreachable
from tasks.known_hosts import check_key, known_keys

__all__ = ["open_connection"]

_OPEN_S = 10.0  # for each of connect, banner, authentication and the jump host's channel

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # our exceptions say what it would log with a traceback


def open_connection(target: Target, deadline: Deadline) -> fabric.Connection:
    """A connection to the target, open, through its jump hosts, each with a key that known_hosts holds.

    Raises: BadInput for a file of the target that cannot be used; HostUnreachable, HostKeyRefused.
    """
    for key in ("identity_file", "ssh_config", "known_hosts_file"):
        if path := getattr(target, key):
            _be_a_file(f"target {target.name}", key, path)
    step_s = max(1.0, min(_OPEN_S, deadline.left_s))
    try:
        connection = _connection(target, step_s)
    except (paramiko.SSHException, ValueError, OSError) as e:
        raise BadInput(target.ssh_config or "~/.ssh/config", target.host, f"cannot be used: {e}") from e
    for hop in hops(connection):
        _be_strict(hop, target, step_s)
    try:
        with _errors_of(target, connection):
            connection.open()
    except HostError:
        for hop in hops(connection):
            hop.client.close()
        raise
    return connection


def _be_a_file(where: str, key: str, path: str) -> None:
    try:
        there = Path(_expand(path))
    except RuntimeError as e:  # ~somebody who is not known here
        raise BadInput(where, key, f"{path}: {e}") from e
    if there.is_dir():
        raise BadInput(where, key, f"{path} is a folder on this machine; a file is meant")
    if there.exists() and not os.access(there, os.R_OK):
        raise BadInput(where, key, f"{path} may not be read by us")
    if not there.exists() and key != "known_hosts_file":  # without one no key is trusted, and that is said
        raise BadInput(where, key, f"{path} does not exist on this machine")


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
        made = ExactTransport(sock, **options)
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
def _errors_of(target: Target, connection: fabric.Connection) -> Iterator[None]:
    """Say which host, which user, and what to try, for each way in which opening fails."""
    who = f"{target.name}: {connection.user}@{connection.host}:{connection.port}"
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


def _try_ssh(connection: fabric.Connection) -> str:
    keys = connection.connect_kwargs.get("key_filename") or ["agent and ~/.ssh"]
    return f"tried keys: {', '.join(keys)}; try `ssh -v -p {connection.port} {connection.user}@{connection.host}`"
