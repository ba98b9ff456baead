"""Where the engine is, read from its milestones as they pass."""

import re
from dataclasses import dataclass

from settings.milestones import Milestone, Milestones
from settings.words import Phase
from tasks.pure.diagnose.lines import Line
from tasks.pure.diagnose.sought import Sought

__all__ = ["Mark", "Marks", "PhaseTracker"]

_PHASES_KEPT = 256  # of phase_log; a server that restarts for ever must not fill the memory


@dataclass(frozen=True, slots=True)
class Mark:
    """A milestone ready to be looked for."""

    engine: str
    milestone: Milestone
    sought: Sought


class Marks:
    """The milestones of one engine, or of all while the engine is not known."""

    def __init__(self, milestones: Milestones, engine: str | None) -> None:
        known = {name: marks for name, marks in milestones.engines.items() if name == engine} or milestones.engines
        self.all = tuple(Mark(name, m, Sought(m.pattern)) for name, marks in known.items() for m in marks)
        self.batch = {m.milestone.pattern.encode(): m for m in self.all if m.milestone.batch}

    def of(self, text: str, engine: str | None) -> Mark | None:
        """The milestone that a text is. What two engines print alike tells nothing about the engine."""
        fit = [m for m in self.all if m.sought.fits(text)]
        return next((m for m in fit if m.engine == engine), fit[0] if fit and engine is None else None)

    def tells_engine(self, text: str) -> str | None:
        """The engine that alone prints such a line."""
        engines = {m.engine for m in self.all if m.sought.fits(text)}
        return engines.pop() if len(engines) == 1 else None


class PhaseTracker:
    """The phase as of the last line that was passed on. The order of the lines is all it knows."""

    def __init__(self, engine: str | None) -> None:
        self.engine = engine
        self.serving = False        # a ready line has passed
        self.ready_line: int | None = None
        self.weights_begun = False  # a load has begun in this run
        self.runs = 0
        self.graphs_off = False
        self.log: list[tuple[Phase, str | None]] = []
        self._phase = Phase.ARGS
        self.begun = False          # the run has shown its arguments

    @property
    def phase(self) -> Phase:
        return self._phase

    def at(self, line: int) -> Phase:
        """The phase of a line: the ready line itself still belongs to the warm-up, the next one to serving."""
        if self._phase is Phase.WARMUP and self.ready_line is not None and line > self.ready_line:
            return Phase.DECODE
        return self._phase

    def pass_mark(self, mark: Mark, line: Line) -> None:
        """Take note of a milestone."""
        milestone = mark.milestone
        if milestone.graphs_off and not self.graphs_off:
            return
        if milestone.restart:
            self._restart(line)
        if milestone.batch and not self.serving:
            if milestone.phase is not Phase.DECODE and self._phase is not Phase.ARGS:
                return  # the warm-up's own requests
            self.serving = True  # a node that prints no ready line, or a log without its beginning
        if milestone.phase is Phase.LOAD:
            self.weights_begun = self.weights_begun or "eight" in line.text or "load model" in line.text
        if milestone.ready and not self.serving:
            self.serving, self.ready_line = True, line.number
        elif self.serving and not (milestone.batch or milestone.phase in {Phase.BENCH, Phase.SHUTDOWN}):
            return  # a late line of another rank
        self._enter(milestone.phase, line.stamp)

    def scheduler_seen(self, line: Line) -> None:
        """A scheduler process speaks: the arguments are behind us."""
        if self._phase is Phase.ARGS and not self.serving:
            self._enter(Phase.LOAD, line.stamp)

    def _restart(self, line: Line) -> None:
        self.runs += self.begun
        self.begun = True
        self.serving, self.ready_line, self.weights_begun = False, None, False
        self.graphs_off = bool(re.search(r"disable_cuda_graph['\"]?[=:] ?True", line.text))

    def _enter(self, phase: Phase, stamp: str | None) -> None:
        if phase is not self._phase or not self.log:
            self.log = [*self.log[-_PHASES_KEPT:], (phase, stamp)]
        self._phase = phase
