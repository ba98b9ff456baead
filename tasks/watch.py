"""Follows one server: its log by byte offset, its life by the supervisor's files, and what both say together."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from settings.words import Phase
from tasks.deadline import Deadline
from tasks.host import Host
from tasks.pure.diagnose import Diagnoser, Progress
from tasks.pure.record import Diagnosis
from tasks.runlog import log
from tasks.supervisor import ServerStatus, Supervisor

__all__ = ["Pulse", "Watch"]

CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pulse:
    """One look at the server. Times are seconds."""

    alive: bool
    status: ServerStatus
    fatal: Diagnosis | None  # first fatal cause in the log so far
    fatal_for_s: float  # since we first saw it
    quiet_for_s: float  # since the last sign of progress
    progress: Progress


class Watch:
    """The eyes on one attempt's server. `look` may be called from any thread; nothing is read twice."""

    def __init__(
        self, host: Host, supervisor: Supervisor, attempt_id: str, log_path: str, diagnoser: Diagnoser,
        keep: Callable[[bytes], None],
    ) -> None:  # fmt: skip
        self._host, self._supervisor, self._id, self._log_path = host, supervisor, attempt_id, log_path
        self._diagnoser, self._keep = diagnoser, keep
        self._lock, self._offset = threading.RLock(), 0
        now = time.monotonic()
        self._signs, self._progressed_at, self._fatal_at = 0, now, None
        self._phase, self._phase_at, self._phases = Phase.ARGS, now, dict[Phase, float]()

    _fatal_at: float | None

    def look(self, deadline: Deadline) -> Pulse:
        """Read what is new in the log and ask whether the server lives. Raises: HostError."""
        with self._lock:
            status = self._supervisor.status(self._id, deadline=deadline)
            self._read(deadline)  # after the status: an ended server has written its last line
            now = time.monotonic()
            fatal = self._diagnoser.fatal
            if fatal and self._fatal_at is None:
                self._fatal_at = now
                log.info("server.doomed", kind=fatal.kind, line=fatal.evidence.line, text=fatal.evidence.text)
            return Pulse(
                alive=status.state == "running",
                status=status,
                fatal=fatal,
                fatal_for_s=now - self._fatal_at if self._fatal_at is not None else 0.0,
                quiet_for_s=now - self._progressed_at,
                progress=self._diagnoser.progress,
            )

    def cause(self, *, ended: bool, exited: bool = False) -> Diagnosis:
        """The log's own diagnosis of all that was read."""
        with self._lock:
            return self._diagnoser.diagnosis(ended=ended, exited=exited)

    @property
    def phase(self) -> Phase:
        """Where the engine was last seen. Like `phases` it waits for nobody: a cancelled run has no time for that."""
        return self._phase

    @property
    def fatal(self) -> Diagnosis | None:
        """The first fatal cause in what was read of the log."""
        return self._diagnoser.fatal

    def phases(self) -> dict[str, float]:
        """Seconds spent in each phase of the engine so far, as we saw them pass."""
        spent = dict(self._phases)
        spent[self._phase] = spent.get(self._phase, 0.0) + time.monotonic() - self._phase_at
        return {str(phase): round(seconds, 3) for phase, seconds in spent.items()}

    def _read(self, deadline: Deadline) -> None:
        while True:
            chunk = self._host.read(self._log_path, self._offset, CHUNK, deadline=deadline)
            if not chunk.data:
                break
            self._offset = chunk.end
            self._keep(chunk.data)
            self._diagnoser.feed(chunk.data)
        now, signs = time.monotonic(), self._diagnoser.progress.signs
        if signs != self._signs:
            self._signs, self._progressed_at = signs, now
        phase = self._diagnoser.phase
        if phase is not self._phase:
            self._phases[self._phase] = self._phases.get(self._phase, 0.0) + now - self._phase_at
            self._phase, self._phase_at = phase, now
