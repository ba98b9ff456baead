"""How long each step and each phase of the engine usually takes on a target, and what is left of a launch by that."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from settings.words import Phase, Stage, StageOutcome
from tasks.pure.record import Attempt, RunRecord

__all__ = ["BEFORE_READY", "Pace", "pace"]

BEFORE_READY = (Phase.ARGS, Phase.LOAD, Phase.KV_ALLOC, Phase.GRAPH_CAPTURE, Phase.WARMUP)


@dataclass(frozen=True, slots=True)
class Pace:
    """Median seconds over earlier launches on the same target. What no launch has shown is not in it."""

    launches: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)  # steps that passed
    phases: Mapping[str, float] = field(default_factory=dict)  # phases that led on to another one

    def left_s(self, stage: str, phase: str, *, in_stage_s: float, in_phase_s: float) -> float | None:
        """Seconds until this step has passed, 0 when it takes longer than usual; None: no launch has shown it."""
        usual = self.phases.get(phase)
        if stage == Stage.READY and phase in BEFORE_READY and usual is not None:
            ahead = BEFORE_READY[BEFORE_READY.index(Phase(phase)) + 1 :]
            return max(0.0, usual - in_phase_s) + sum(self.phases.get(later, 0.0) for later in ahead)
        usual = self.stages.get(stage)
        return None if usual is None else max(0.0, usual - in_stage_s)

    def after_s(self, stage: str, gates: Sequence[str]) -> float | None:
        """Seconds that the gates behind this step usually take; None where one of them has never passed here."""
        order = [str(s) for s in Stage if s in gates or s in (Stage.PREFLIGHT, Stage.LAUNCH, Stage.READY)]
        ahead = order[order.index(stage) + 1 :] if stage in order else []
        usual = [self.stages.get(later) for later in ahead]
        return None if None in usual else sum(s for s in usual if s is not None)


def pace(runs: Iterable[RunRecord], *, target: str, model: str | None = None) -> Pace:
    """What the launches of these runs show. `model`: only those of this model, as far as the records name theirs."""
    launches = [a for run in runs if _same(run, target, model) for a in run.attempts if a.stages]
    passed = (s for a in launches for s in a.stages if s.outcome is StageOutcome.PASSED)
    return Pace(
        launches=len(launches),
        stages=_medians((str(s.stage), s.wall_s) for s in passed),
        phases=_medians(pair for a in launches for pair in _completed(a)),
    )


def _same(run: RunRecord, target: str, model: str | None) -> bool:
    other = model and run.asked and run.asked.target_ref.model != model
    return run.target == target and not other


def _completed(a: Attempt) -> Iterator[tuple[str, float]]:
    """The phases that came to their end; the one in which an attempt ended says nothing of how long it takes."""
    ready = any(s.stage is Stage.READY and s.outcome is StageOutcome.PASSED for s in a.stages)
    seen = list(a.phases.items())
    return ((phase, s) for phase, s in (seen if ready else seen[:-1]) if phase in BEFORE_READY)


def _medians(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for name, seconds in pairs:
        values.setdefault(name, []).append(seconds)
    return {name: median(all_) for name, all_ in values.items()}
