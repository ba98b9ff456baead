"""What the steps of one run share: live objects and settings. It is never stored and never printed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from settings.accuracy import AccuracyGate
from settings.catalogue import Catalogue
from settings.engine import Engine
from settings.ladder import Ladder
from settings.load_test import LoadTest
from settings.milestones import Milestones
from settings.run import RunSettings
from settings.suite import BenchProfile, DecodeSuite
from settings.target import Target
from settings.words import Phase
from tasks.deadline import Deadline
from tasks.host import Host
from tasks.pure.accuracy import Questions
from tasks.pure.capabilities import Capabilities
from tasks.pure.plan import LaunchPlan
from tasks.pure.record import LoadSummary
from tasks.sampler import UnderLoad
from tasks.store import RunFolder
from tasks.supervisor import Supervisor
from tasks.watch import Watch

__all__ = ["Progress", "Server", "Session"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a person sees while a step works, or the run waits for its host."""

    n: int  # of the attempt; 0 = before the first
    rung: str
    stage: str
    text: str
    fraction: float | None = None  # 0..1 where it is known
    phase: str = ""  # of the engine, where the step waits for one
    line: str = ""  # the log's last line that means something


@dataclass(slots=True)
class Session:
    """One run on one host."""

    target: Target
    ladder: Ladder
    engine: Engine
    catalogue: Catalogue
    milestones: Milestones
    decode_suite: DecodeSuite
    recheck_suite: DecodeSuite
    warmup_suite: DecodeSuite
    load_test: LoadTest
    profiles: tuple[BenchProfile, ...]
    settings: RunSettings
    folder: RunFolder
    host: Host
    supervisor: Supervisor
    deadline: Deadline  # of the whole run
    show: Callable[[Progress], None]
    capabilities: Capabilities | None = None  # after the probe
    new_build: bool = True  # not seen on this host before: limits are longer
    running: str | None = None  # id of the attempt whose server may run
    accuracy: tuple[AccuracyGate, Questions] | None = None  # where the ladder names that gate
    rival: LoadSummary | None = None  # what a variation must beat
    kept: bool = False  # the server outlives this run, and the lock with it
    may_be_kept: bool = False  # that was asked for, and what came of it is not known
    taken_up: str | None = None  # id of an earlier attempt whose server still runs, or died unseen

    def call(self) -> Deadline:
        """The deadline of one call to the host."""
        return Deadline.after(self.settings.call_s)

    def probe_deadline(self) -> Deadline:
        return Deadline.after(self.settings.probe_s)

    def quiet_limit_s(self, phase: Phase) -> float:
        """Seconds that the engine may be silent in this phase."""
        if phase in self.settings.quiet_s:
            return self.settings.quiet_s[phase]
        waiting = self.engine.waiting
        return waiting.quiet_s.get(phase, waiting.quiet_default_s) * self._patience

    @property
    def ready_limit_s(self) -> float:
        """Seconds from launch to ready."""
        return self.engine.waiting.ready_total_s * self._patience

    @property
    def _patience(self) -> float:
        return self.engine.waiting.new_build_factor if self.new_build else 1.0


@dataclass(slots=True)
class Server:
    """The server of one attempt, from its launch to its end."""

    n: int
    id: str
    rung: str
    plan: LaunchPlan
    watch: Watch
    client: httpx.Client
    log_copy: Path
    ready_by: Deadline  # from the launch on, whatever is retried
    under_load: UnderLoad | None = None  # once its load test has begun
