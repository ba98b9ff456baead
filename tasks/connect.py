"""From a target to a host: which kind it is, and what its paths mean there."""

from settings.target import Target, resolve_path
from tasks.deadline import Deadline
from tasks.host import Host
from tasks.local_host import LocalHost
from tasks.ssh_host import SshHost

__all__ = ["connect", "resolved"]


def connect(target: Target, *, deadline: Deadline) -> Host:
    """The target as a host, connected; the target's `env` is the environment of everything that is run there.

    Raises: HostUnreachable, HostKeyRefused.
    """
    if target.is_local:
        return LocalHost(target.name, env=target.plain_env())
    return SshHost(target, deadline=deadline)


def resolved(target: Target, host: Host) -> Target:
    """`target` with `~` and `$HOME` at the beginning of its paths on the host replaced by the home folder there."""
    paths = {field: resolve_path(getattr(target, field), host.home) for field in ("python", "state_dir", "model")}
    return target.model_copy(update=paths)
