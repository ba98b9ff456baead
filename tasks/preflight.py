"""Looks, in one short command, for what would make a launch fail after ten minutes of loading."""

from settings.engine import Engine
from settings.target import Target
from tasks.connect import resolved
from tasks.deadline import Deadline
from tasks.host import Host
from tasks.probe import ask
from tasks.pure.preflight import HostNow, Obstacle, check
from tasks.pure.probed import host_now_from

__all__ = ["look", "preflight"]

_PARTS = ("limits", "nvidia", "model")


def preflight(host: Host, target: Target, engine: Engine, port: int, *, deadline: Deadline) -> tuple[Obstacle, ...]:
    """What stands in the way of a launch on `port`; empty = go. Raises: HostError."""
    return check(look(host, target, engine, port, deadline=deadline), target, engine, port)


def look(host: Host, target: Target, engine: Engine, port: int, *, deadline: Deadline) -> HostNow:
    """The quick facts. Raises: HostError."""
    report = ask(host, resolved(target, host), engine, _PARTS, deadline=deadline)
    return host_now_from(report, port_free=_is_free(host, port, deadline))


def _is_free(host: Host, port: int, deadline: Deadline) -> bool:
    try:
        host.open_tcp(port, deadline=deadline).close()
    except ConnectionRefusedError:
        return True
    return False
