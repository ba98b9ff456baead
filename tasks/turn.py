"""Takes a host that another run may have: at once, or when its turn has come."""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.deadline import Deadline, pause
from tasks.host import DeadlinePassed, HostLost, HostUnreachable
from tasks.runlog import log
from tasks.session import Progress
from tasks.supervisor import Acquired, Holder, Supervisor

__all__ = ["HostBusy", "Turn"]

_LOOK_AGAIN_S = 5.0  # each look is a short command on the host


class HostBusy(Exception):
    """Another run has the host. The message names it, its owner and what to do. `target`: as a person named it."""

    def __init__(self, holder: Holder, target: str) -> None:
        runs = holder.daemon_alive and not holder.kept
        cure = "wait for it (`--wait-s`), or end it there" if runs else f"`bringup stop --target {target}` ends it"
        super().__init__(f"{_whose(holder)}: {cure}")


@dataclass(frozen=True, slots=True)
class Turn:
    """How a host is taken that another run may have."""

    supervisor: Supervisor
    host: str
    named: str
    over: Deadline  # of the wait
    wait_s: float
    stop_s: float
    show: Callable[[Progress], None]

    def acquire(self) -> Acquired:
        """The host, as soon as it is free; a connection that is lost meanwhile ends no wait. Raises: HostBusy."""
        told = ""
        while True:
            try:
                taken = self.supervisor.acquire(deadline=Deadline.after(self.stop_s))
            except (HostUnreachable, HostLost, DeadlinePassed) as e:
                if self.over.passed:
                    raise
                why = str(e)
            else:
                if isinstance(taken, Acquired):
                    return taken
                if self.over.passed:
                    raise HostBusy(taken.holder, self.named)
                why = _whose(taken.holder)
            if why != told:
                log.info("host.waiting", host=self.host, at_most_s=self.wait_s, why=why)
                told = why
            waited_s = self.wait_s - self.over.left_s
            text = f"host busy: waited {waited_s:.0f} s of at most {self.wait_s:.0f} s"
            self.show(Progress(0, "", "host", text, waited_s / self.wait_s))
            pause(_LOOK_AGAIN_S, self.over)


def _whose(holder: Holder) -> str:
    who = (holder.keeper if holder.kept else holder.owner) or "somebody"
    has = "has kept a server there" if holder.kept else "has had the host"
    dead = "" if holder.daemon_alive else ", dead"
    return f"{who} {has} since {holder.since or '?'} (run {holder.run_id or 'unknown'}{dead})"
