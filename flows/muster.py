"""Waits for the hosts of a fleet: who is still to come, who is at work, who has ended. Knows not who runs them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from flows.crew import Crew
from settings.words import ExitCode
from tasks.deadline import Deadline, pause
from tasks.pure.fleet import FleetRow

__all__ = ["Muster"]

_REFUSALS = frozenset({400, 401, 403, 404, 405, 409, 422})  # others pass: a server that is busy, slow or starting
_AWAY_S = 900.0  # the runs go on without the Prefect server; their rows can wait that long


class Muster:
    """`hosts`: by name the word for its target. `refused`: rows of those that never begin. `asked`: of every run."""

    def __init__(
        self, hosts: Mapping[str, str], refused: Sequence[FleetRow], crew: Crew, asked: Mapping[str, Any], *,
        hear: Callable[[str, Mapping[str, Any]], None], at_once: int, patience_s: float, poll_s: float = 1.0,
    ) -> None:  # fmt: skip
        self._hosts, self._refused, self._crew, self._asked = hosts, refused, crew, asked
        self._hear, self._at_once, self._patience_s, self._poll_s = hear, at_once, patience_s, poll_s
        self._to_come = deque(hosts)
        self._runs: dict[str, str] = {}  # by host; those that have not ended
        self._seen: dict[str, str] = {}  # the state of each run
        self._until: dict[str, Deadline] = {}  # how long each run is believed in: to be taken, then to end
        self._cut = ExitCode.INTERRUPTED, "cancelled with its fleet"  # what the runs that were dismissed came to
        self._at_work = set[str]()
        self._ended: dict[str, FleetRow] = {}

    @property
    def rows(self) -> list[FleetRow]:
        """One for each host, in the order given; those refused come last."""
        return [self._ended.get(name) or self._cut_short(name) for name in self._hosts] + [*self._refused]

    def _cut_short(self, name: str) -> FleetRow:
        exit_, why = self._cut
        return FleetRow(target=name, state="Cancelled", exit=exit_, headline=why if name in self._runs else "not begun")

    def wait(self) -> None:
        """Until each host has its row. Raises: httpx.HTTPError when the Prefect server refuses us, or stays away."""
        hosts = len(self._hosts) + len(self._refused)
        self._hear("fleet.started", {"hosts": hosts, "at_once": self._at_once, "by": self._crew.said})
        for row in self._refused:
            self._tell(row.target, row.state, row.headline)
        away = Deadline.after(_AWAY_S)
        while len(self._ended) < len(self._hosts):
            try:
                self._begin()
                self._look()
                away = Deadline.after(_AWAY_S)
            except httpx.HTTPError as e:
                refused = isinstance(e, httpx.HTTPStatusError) and e.response.status_code in _REFUSALS
                if refused or away.passed:
                    raise
            pause(self._poll_s, Deadline.after(self._poll_s))

    def dismiss(self, error: Exception | None = None) -> None:
        """End the runs that have begun; the others never begin. `error`: what ended the fleet, if nobody wanted it."""
        if error is not None:
            self._cut = ExitCode.UNEXPECTED, f"cancelled, since its fleet failed: {type(error).__name__}: {error}"
        self._crew.cancel(list(self._runs.values()))

    def _begin(self) -> None:
        while self._to_come and len(self._runs) < self._at_once:
            name = self._to_come[0]
            begun = self._crew.start({**self._asked, "target": self._hosts[name]})
            self._to_come.popleft()
            if isinstance(begun, FleetRow):
                self._end(name, begun.model_copy(update={"target": name}))
                continue
            self._runs[name] = begun
            self._until[name] = Deadline.after(self._patience_s)

    def _look(self) -> None:
        for name, seen in self._crew.look(self._runs).items():
            if isinstance(seen, FleetRow):
                self._end(name, seen)
            elif seen != self._seen.get(name):  # e.g. Late: it waits for a worker
                self._seen[name] = seen
                self._tell(name, seen)
                if seen == "Running" and name not in self._at_work:
                    self._at_work.add(name)
                    self._until[name] = Deadline.after(self._patience_s)
            elif name not in self._at_work and self._at_work & self._runs.keys():
                self._until[name] = Deadline.after(self._patience_s)  # its worker may be at work on another host
            elif self._until[name].passed:
                self._crew.cancel([self._runs[name]])
                why = f"no end after {self._patience_s:.0f} s; see `bringup status --target {self._hosts[name]}`"
                if name not in self._at_work:
                    why = f"no worker has taken it in {self._patience_s:.0f} s"
                self._end(name, FleetRow(target=name, state="Lost", exit=ExitCode.UNEXPECTED, headline=why))

    def _end(self, name: str, row: FleetRow) -> None:
        self._runs.pop(name, None)
        self._ended[name] = row
        self._tell(name, row.state, row.headline)

    def _tell(self, name: str, state: str, headline: str = "") -> None:
        refused = len(self._refused)
        count = {"ended": len(self._ended) + refused, "hosts": len(self._hosts) + refused}
        self._hear("fleet.host", {"target": name, "state": state, "headline": headline, **count})
