"""The one diagnosis of an attempt when it is not simply the log's own (contracts §1, "One diagnosis per attempt")."""

from collections.abc import Sequence

from settings.words import Action, Component, Phase, Stage
from tasks.pure.plan import Override
from tasks.pure.preflight import Obstacle
from tasks.pure.record import Diagnosis

__all__ = [
    "aborted",
    "below_slo",
    "ended_without_cause",
    "hung",
    "inaccurate",
    "judged",
    "not_ready",
    "obstructed",
    "overruled",
    "unmeasured",
    "unspellable",
]

_PART_OF = {Phase.LOAD: Component.LOADER, Phase.GRAPH_CAPTURE: Component.GRAPH}
_CLIENT = {Stage.BENCH: "load test", Stage.ACCURACY: "accuracy gate"}
_AFTER_VERDICT = {
    "nan": (Component.ATTENTION, Action.NEXT_BACKEND, "the replies hold NaN, whatever the log says"),
    "garbage": (Component.UNKNOWN, Action.OTHER_FLAG, "the replies are finite numbers, but no sense"),
    "empty": (Component.UNKNOWN, Action.OTHER_FLAG, "the replies hold no text"),
    "truncated": (Component.UNKNOWN, Action.OTHER_FLAG, "the replies end before the asked length"),
    "hang": (Component.UNKNOWN, Action.RETRY_SAME, "the requests were not through in their time"),
    "reply_error": (Component.UNKNOWN, Action.STOP, "the server answers requests with errors"),
}


def judged(kind: str, why: str, stage: Stage) -> Diagnosis:
    """What the judge of the replies found; for `nan` without another suspect the component is attention."""
    component, action, means = _AFTER_VERDICT.get(kind, (Component.UNKNOWN, Action.STOP, kind))
    return Diagnosis(
        kind=kind, phase=Phase.DECODE, component=component, action=action, stage=stage, means=f"{means}: {why}",
        try_="look at the replies of this attempt in the record", source="tasks/pure/judge.py",
    )  # fmt: skip


def inaccurate(why: str) -> Diagnosis:
    """A server whose answers are fluent and wrong."""
    return Diagnosis(
        kind="accuracy", phase=Phase.DECODE, action=Action.OTHER_FLAG, stage=Stage.ACCURACY,
        means=f"the answers are wrong too often: {why}",
        try_="read some of them on the host; then another KV dtype, MoE or GEMM backend", source="sgl-eval",
    )  # fmt: skip


def unmeasured(
    kind: str, why: str, component: Component = Component.CLIENT, stage: Stage = Stage.BENCH
) -> Diagnosis:
    """A load test (or accuracy run) whose figures cannot be believed though the server answers well."""
    return Diagnosis(
        kind=kind, phase=Phase.BENCH, component=component, action=Action.RETRY_SAME, stage=stage,
        means=f"the {_CLIENT[stage]} gave no valid figure: {why}", try_="read its output beside the record",
        source="tasks/pure/bench.py",
    )  # fmt: skip


def below_slo(why: str) -> Diagnosis:
    """A server that answers well, and not as fast as it must."""
    return Diagnosis(
        kind="slo_missed", phase=Phase.BENCH, action=Action.OTHER_FLAG, stage=Stage.BENCH, means=why,
        try_="compare the points in the report; another rung or variation may be faster",
        source="[slo] of the load test",
    )  # fmt: skip


def hung(phase: Phase, quiet_s: float, limit_s: float) -> Diagnosis:
    """A server that lives and makes no progress any more."""
    return Diagnosis(
        kind="hang", phase=phase, component=_PART_OF.get(phase, Component.UNKNOWN), action=Action.RETRY_SAME,
        stage=Stage.READY, means=f"no sign of progress for {quiet_s:.0f} s in {phase} (limit {limit_s:.0f} s)",
        try_="launch it once more; if it hangs at the same place, attach py-spy to the scheduler",
        source="settings/engines, [waiting]",
    )  # fmt: skip


def not_ready(phase: Phase, limit_s: float) -> Diagnosis:
    """A server that made progress to the end, but not enough."""
    return Diagnosis(
        kind="not_ready", phase=phase, action=Action.STOP, stage=Stage.READY,
        means=f"not ready within {limit_s:.0f} s; it was in {phase}",
        try_="give it more time in the engine file ([waiting] ready_total_s), or find what is slow in the log",
        source="settings/engines, [waiting]",
    )  # fmt: skip


def overruled(overrides: Sequence[Override], component: Component | None) -> Diagnosis:
    """A server that runs with other settings than it was asked for."""
    said = "; ".join(f"{o.intent}: asked {o.asked}, runs {o.effective}" for o in overrides)
    return Diagnosis(
        kind="overridden", phase=Phase.WARMUP, component=component or Component.FLAGS, action=Action.OTHER_FLAG,
        stage=Stage.READY, means=f"the build overrides what was asked ({said})",
        try_="take another rung or another release: this one does not do what it is told", source="/server_info",
    )  # fmt: skip


def obstructed(obstacles: Sequence[Obstacle]) -> Diagnosis:
    """Something on the host stands in the way of a launch."""
    first, *others = obstacles
    return Diagnosis(
        kind=first.kind, phase=Phase.ARGS, component=first.component,
        action=Action.OTHER_FLAG if first.kind == "port" else Action.STOP, stage=Stage.PREFLIGHT, means=first.means,
        try_=first.try_, source="preflight", also_seen=tuple(o.means for o in others),
    )  # fmt: skip


def unspellable(why: str) -> Diagnosis:
    """A rung that this build has no words for, or that is put off because it is expected to fail."""
    return Diagnosis(
        kind="unsupported", phase=Phase.ARGS, component=Component.FLAGS, action=Action.OTHER_FLAG,
        stage=Stage.PREFLIGHT, means=why, source="the build's own argument parser",
    )  # fmt: skip


def ended_without_cause(stage: Stage, phase: Phase, how: str) -> Diagnosis:
    """A server that is gone, and whose log names nothing."""
    return Diagnosis(
        kind="unknown", phase=phase, action=Action.STOP, stage=stage,
        means=f"the server is gone ({how}) and its log names no cause", try_="read the log", source="exit.json",
    )  # fmt: skip


def aborted(kind: str, stage: Stage, phase: Phase, why: str) -> Diagnosis:
    """We ended the server ourselves; that is never the rung's failure."""
    return Diagnosis(kind=kind, phase=phase, action=Action.STOP, stage=stage, means=why, source="our own supervisor")
