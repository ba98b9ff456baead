"""Keeps a lease renewed from a thread with a connection of its own, so that no slow step can let it run out."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import structlog

from tasks.deadline import Deadline
from tasks.supervisor import Supervisor

__all__ = ["Lease"]

log = structlog.get_logger(__name__)


class Lease:
    """Renews every third of `lease_s` while the `with` block runs.

    `connect` gives a Supervisor whose host is this thread's alone; it is called again after each lost connection, until
    the lease is certainly over. `held` is what we believe: False once the host said no, or once nobody can have renewed
    it for `lease_s`.
    """

    def __init__(
        self, connect: Callable[[], Supervisor], *, lease_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect, self._lease_s, self._clock = connect, lease_s, clock
        self._over = Deadline.after(lease_s, clock)
        self._refused = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew_all, name="lease", daemon=True)

    @property
    def held(self) -> bool:
        return not self._refused and not self._over.passed

    @property
    def left_s(self) -> float:
        """Seconds for which the host surely still keeps the server when nothing more gets through."""
        return 0.0 if self._refused else self._over.left_s

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Renew no more. A connection that hangs is not waited for: the thread ends with its deadline."""
        self._stopping.set()
        self._thread.join(timeout=min(5.0, self._lease_s))

    def _renew_all(self) -> None:
        supervisor: Supervisor | None = None
        every_s = self._lease_s / 3
        while self.held and not self._stopping.is_set():
            asked_at = self._clock()
            try:
                supervisor = supervisor or self._connect()
                if not supervisor.renew(deadline=Deadline.after(every_s, self._clock)):
                    self._refused = True
                    log.warning("lease.refused", host=supervisor.host.name)
                    break
                self._over = Deadline(asked_at + self._lease_s, self._clock)  # from the asking: the reply came later
                wait_s = every_s
            except Exception as e:  # noqa: BLE001 - e.g. a key file that was moved, no thread left: who renews lives on
                with suppress(Exception):
                    log.warning("lease.not_renewed", left_s=round(self._over.left_s, 1), why=f"{e}" or repr(e))
                if supervisor is not None:
                    supervisor.host.close()
                supervisor, wait_s = None, min(1.0, every_s / 4)
            self._stopping.wait(max(0.0, wait_s - (self._clock() - asked_at)))
        if supervisor is not None:
            supervisor.host.close()
