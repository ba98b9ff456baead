"""Tonight beside the good runs before it: which rung broke or works again, and which number left its band.

A number is judged against the median and the MAD of the good runs whose winner was the same rung: one slow night moves
neither. What cannot be judged is said, never guessed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal

from settings.band import Band, Bands
from settings.words import AttemptOutcome, RunOutcome, Stage
from tasks.pure.accuracy import compared
from tasks.pure.build import DECIDED, SERVING
from tasks.pure.comparison import Comparison, Finding
from tasks.pure.history import winner_of
from tasks.pure.pace import BEFORE_READY
from tasks.pure.record import Attempt, Diagnosis, ReplyVerdict, RunRecord, TargetRef
from tasks.pure.sweep import spread

__all__ = ["band_of", "compare_with_history", "figures_of", "good_runs", "rungs_of", "signature"]

_BETTER_UP = {"output_tokens_per_s": True, "ttft_p99_ms": False, "tpot_median_ms": False, "e2e_p99_ms": False}
_UNITS = {"per_s": "tok/s", "ms": "ms"}
_SIGMA = 1.4826  # MAD of normally distributed values, in standard deviations
_STARTING = (Stage.LAUNCH, Stage.READY, Stage.WARMUP)
_RANK = {RunOutcome.SERVING: 2, RunOutcome.SERVING_UNMEASURED: 1, RunOutcome.SERVING_BELOW_SLO: 1}


def good_runs(record: RunRecord, earlier: Iterable[RunRecord], most: int) -> list[RunRecord]:
    """The runs before it that served with the same target and ladder; `earlier` and the result: the newest first.

    A run that confirms another, or that is a step of a bisect, is no night.
    """
    found: list[RunRecord] = []
    for run in earlier:
        before = run.started_at < record.started_at and run.confirms is None
        if before and run.outcome in SERVING and _walked(run) == _walked(record):
            found.append(run)
        if len(found) == most:
            break
    return found


def compare_with_history(record: RunRecord, good: Sequence[RunRecord], bands: Bands) -> Comparison | None:
    """What differs from the good runs, the newest of which is the last good one.

    None where there is none, or where this run came to no decision: a lost host says nothing of a build.
    """
    if not good or record.outcome not in DECIDED:
        return None
    last = good[0]
    judged = [*_branch(last, record), *_verdicts(last, record), *_accuracy(last, record)]
    numbers = list(_numbers(record, good, bands))
    return Comparison(
        last_good=last.run_id,
        nights=len(good),
        findings=(*judged, *(found for found in numbers if isinstance(found, Finding))),
        not_judged=tuple(said for said in numbers if isinstance(said, str)),
    )


def signature(found: Diagnosis | None) -> str:
    """What two failures share when they are the same one on two builds. Frames and texts move with the code."""
    return f"{found.kind} ({found.component}) in {found.stage or found.phase}" if found else "no cause"


def rungs_of(run: RunRecord) -> dict[str, str]:
    """By rung that was met: "passed", why it was skipped, or the signature of its last failure.

    One that was not launched since the host was in the way was not met.
    """
    states: dict[str, str] = {}
    for a in run.attempts:
        met = a.outcome is not AttemptOutcome.ABORTED and a.failed_stage is not Stage.PREFLIGHT
        if a.variation is None and met and states.get(a.rung) != "passed":
            states[a.rung] = _state(a)
    return states


def figures_of(run: RunRecord) -> dict[str, float]:
    """The load test of what served, "profile at concurrency: figure" → median over its valid runs."""
    won = winner_of(run)
    if won is None or won.load is None:
        return {}
    return {
        f"{f.profile} at {f.concurrency}: {name}": f.median[name]
        for f in won.load.figures for name in _BETTER_UP if name in f.median
    }  # fmt: skip


def band_of(nights: Sequence[float], band: Band) -> tuple[float, float]:
    """The lowest and the highest value that is no news after these nights."""
    middle = median(nights)
    half = max(band.z * _SIGMA * spread(nights), band.change * abs(middle), band.least)
    return middle - half, middle + half


# --- what is judged against the last good run alone ------------------------------------------------------------------


def _walked(run: RunRecord) -> tuple[str, str, TargetRef | None]:
    return run.target, run.ladder.name, run.asked.target_ref if run.asked else None


def _state(a: Attempt) -> str:
    if a.outcome is AttemptOutcome.PASSED:
        return "passed"
    if a.outcome is AttemptOutcome.SKIPPED:
        return f"skipped: {a.diagnosis.means if a.diagnosis else 'no reason'}"
    return signature(a.diagnosis)


def _branch(last: RunRecord, now: RunRecord) -> Iterator[Finding]:
    was, is_ = rungs_of(last), rungs_of(now)
    for rung in is_:
        if rung in was and (was[rung] == "passed") != (is_[rung] == "passed"):
            broke = was[rung] == "passed"
            said = f"passed and now not: {is_[rung]}" if broke else f"works again; it had failed: {was[rung]}"
            yield Finding(
                kind="branch", what=f"rung {rung}", direction=_direction(broke), was=was[rung], now=is_[rung],
                said=f"rung {rung} {said}",
            )  # fmt: skip
    came, before = _RANK.get(now.outcome, 0), _RANK.get(last.outcome, 0)
    if came != before:
        yield Finding(
            kind="branch", what="outcome", direction=_direction(came < before), was=_end(last), now=_end(now),
            said=f"the run came to '{_end(now)}', before to '{_end(last)}'",
        )  # fmt: skip


def _end(run: RunRecord) -> str:
    won = winner_of(run)
    if won:
        return f"{run.outcome} on {won.rung}"
    cause = run.source.diagnosis if run.source else None
    return f"{run.outcome}: {signature(cause)}" if cause else str(run.outcome)


def _verdicts(last: RunRecord, now: RunRecord) -> Iterator[Finding]:
    """Replies to the same questions on the same rung."""
    was, is_ = _replies(last), _replies(now)
    for key, reply in is_.items():
        rung, stage, probe = key
        before = was.get(key)
        if last.suites.get(stage) != now.suites.get(stage) or before is None:
            continue
        if "not_run" not in (before.verdict, reply.verdict) and (before.verdict == "ok") != (reply.verdict == "ok"):
            worse = before.verdict == "ok"
            why = (reply if worse else before).why
            said = f"{rung}: the reply to {probe} ({stage}) was {before.verdict} and is {reply.verdict}: {why}"
            yield Finding(
                kind="verdict", what=f"{rung}: {stage} {probe}", direction=_direction(worse), was=str(before.verdict),
                now=str(reply.verdict), said=said,
            )  # fmt: skip


def _replies(run: RunRecord) -> dict[tuple[str, str, str], ReplyVerdict]:
    return {
        (a.rung, str(v.stage), v.id): v for a in run.attempts if a.variation is None for v in a.decode if v.stage
    }


def _accuracy(last: RunRecord, now: RunRecord) -> Iterator[Finding]:
    was, is_ = (a.accuracy if (a := winner_of(run)) else None for run in (last, now))
    if was is None or is_ is None:
        return
    fell, rose = compared(is_, was)[1], compared(was, is_)[1]
    if fell or rose:
        said = f"{is_.benchmark}: {was.score:.1%} right before, now {is_.score:.1%} ({is_.low:.1%} to {is_.high:.1%})"
        yield Finding(
            kind="accuracy", what=is_.benchmark, direction=_direction(fell), was=was.score, now=is_.score,
            unit="share", low=is_.low, high=is_.high, said=said,
        )  # fmt: skip


# --- numbers, judged against the nights ------------------------------------------------------------------------------


def _numbers(now: RunRecord, good: Sequence[RunRecord], bands: Bands) -> Iterator[Finding | str]:
    """Findings, and a sentence for what was not judged."""
    won = winner_of(now)
    if won is None:
        return
    same = [run for run in good if _served_as(run) == _served_as(now)]
    times = [_times(run) for run in same if not run.resumed_at]
    figures = [figures_of(run) for run in same if run.suites.get("bench") == now.suites.get("bench")]
    if not now.resumed_at:  # a sitting that adopts a server measures no start
        yield from _judge("time", _times(now), times, bands.time, bands.fewest, won.rung)
    yield from _judge("figure", figures_of(now), figures, bands.figure, bands.fewest, won.rung)


def _served_as(run: RunRecord) -> tuple[str, str | None] | None:
    won = winner_of(run)
    return (won.rung, won.variation) if won else None


def _times(run: RunRecord) -> dict[str, float]:
    """Seconds of the start. What comes after it lasts as long as its suite asks: its figures are judged instead."""
    won = winner_of(run)
    if won is None:
        return {}
    steps = {f"{won.rung}: {s.stage}": s.wall_s for s in won.stages if s.stage in _STARTING}
    return steps | {f"{won.rung}: engine's {phase}": s for phase, s in won.phases.items() if phase in BEFORE_READY}


def _judge(
    kind: Literal["time", "figure"], now: Mapping[str, float], nights: Sequence[Mapping[str, float]], band: Band,
    fewest: int, rung: str,
) -> Iterator[Finding | str]:  # fmt: skip
    few: list[int] = []
    for what, value in now.items():
        values = [night[what] for night in nights if what in night]
        if len(values) < fewest:
            few.append(len(values))
            continue
        low, high = band_of(values, band)
        if low <= value <= high:
            continue
        name = what.rpartition(": ")[2]
        unit = "s" if kind == "time" else next(u for end, u in _UNITS.items() if name.endswith(end))
        worse = (value < low) if _BETTER_UP.get(name, False) else (value > high)
        middle = median(values)
        change = f" ({(value - middle) / middle:+.0%})" if middle else ""
        said = f"{what} {_shown(middle)} -> {_shown(value)} {unit}{change}; band of {len(values)} nights: "
        said += f"{_shown(low)} to {_shown(high)}"
        yield Finding(
            kind=kind, what=what, direction=_direction(worse), was=middle, now=value, unit=unit, low=low, high=high,
            nights=len(values), said=said,
        )  # fmt: skip
    if few:
        yield f"{kind}s of {rung} ({len(few)}): at most {max(few)} good nights to compare with, {fewest} are needed"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _direction(worse: bool) -> Literal["worse", "better"]:
    return "worse" if worse else "better"
