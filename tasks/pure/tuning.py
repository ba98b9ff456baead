"""What follows once a rung serves: declared variations around it, one at a time, and the best of them is the winner.

The walk itself (tasks/pure/walker.py) does not see variations: one that fails takes no edge, it is only not kept.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from settings.ladder import Ladder
from settings.words import AttemptOutcome, Component, RunOutcome
from tasks.pure.record import Attempt, BenchPoint, Halt, LoadFigure, LoadSummary, Move
from tasks.pure.walker import End, Step, Try, next_move, tried_as

__all__ = ["again", "better", "incumbent", "loses", "next_step"]

_TUNABLE = (RunOutcome.SERVING, RunOutcome.SERVING_BELOW_SLO)
_HOPELESS = 0.1  # share by which a point's output throughput lies below the incumbent's, where there is no SLO


def next_step(
    ladder: Ladder, trail: Sequence[Attempt], *, spent_s: float = 0.0, before: int = 0,
    components: Mapping[str, Component] | None = None,
) -> Step:  # fmt: skip
    """The walk's next step; after a rung has passed, its next variation; at last the end with the best as winner.

    The arguments are those of `next_move`.
    """
    walk = [a for a in trail if a.variation is None]
    step = next_move(ladder, walk, spent_s=spent_s, components=components, before=min(before, len(walk)))
    if not (ladder.vary and isinstance(step.then, End) and step.then.outcome in _TUNABLE):
        return step
    best, kept = _fold(ladder, trail, walk[-1])
    left = [name for name in ladder.vary if name not in {a.variation for a in trail}]
    stop = _no_budget(ladder, trail[before:], spent_s)
    if left and not stop:
        return Step(
            Move(move="vary", to=left[0], edge=f"vary.{left[0]}", why=ladder.vary[left[0]].why),
            _varied(ladder, walk, [*kept, left[0]]),
        )
    end = next_move(ladder, [best.model_copy(update={"variation": None})]).then
    assert isinstance(end, End), "the best attempt has passed"
    said = f"best of {len(ladder.vary) - len(left) + 1}: '{best.rung}'" + (f" with {', '.join(kept)}" if kept else "")
    rest = f"; {', '.join(left)} not tried, {stop}" if left else ""
    return Step(None, End(end.outcome, Halt(reason=said + rest, by="rung"), winner=best.n))


def incumbent(ladder: Ladder, trail: Sequence[Attempt]) -> Attempt | None:
    """The best attempt so far, which a variation must beat; None while nothing has passed."""
    passed = next((a for a in trail if a.variation is None and a.outcome is AttemptOutcome.PASSED), None)
    return _fold(ladder, trail, passed)[0] if passed else None


def again(ladder: Ladder, trail: Sequence[Attempt]) -> Try | None:
    """The best configuration as a try of its own, for a server that is to stay."""
    passed = next((a for a in trail if a.variation is None and a.outcome is AttemptOutcome.PASSED), None)
    if passed is None:
        return None
    return _varied(ladder, [a for a in trail if a.variation is None], _fold(ladder, trail, passed)[1])


def better(new: LoadSummary | None, old: LoadSummary | None, margin: float) -> bool:
    """By the SLO's capacity, then by output throughput at the points that both have; by more than margin and spread."""
    if new is None or old is None:
        return False
    if new.capacity and old.capacity:
        here, there = (sum(c or 0 for c in s.capacity.values()) for s in (new, old))
        if here != there and abs(here - there) > margin * max(here, there):
            return here > there
    pairs = [(a, b) for a in new.figures for b in old.figures if _same_point(a, b) and _rate(a) and _rate(b)]
    if not pairs:
        return False
    gain = math.exp(math.fsum(math.log(_rate(a) / _rate(b)) for a, b in pairs) / len(pairs)) - 1
    noise = max((_spread(a) + _spread(b)) / _rate(b) for a, b in pairs)
    return gain > max(margin, noise)


def loses(rival: LoadSummary, done: Sequence[BenchPoint], figures: Sequence[LoadFigure]) -> str:
    """Why a variation cannot beat the incumbent any more; "" while it can. The newest point is looked at."""
    if not done or not done[-1].valid:
        return ""
    newest = next((f for f in figures if (f.profile, f.concurrency) == (done[-1].profile, done[-1].concurrency)), None)
    before = next((f for f in rival.figures if newest and _same_point(newest, f)), None)
    if newest is None or before is None:
        return ""
    if newest.slo_met is not None:
        lost = newest.slo_met is False and newest.concurrency <= (rival.capacity.get(newest.profile) or 0)
        return f"it misses the SLO with {newest.concurrency} at once, where the incumbent keeps it" if lost else ""
    if before.runs and _rate(newest) < (1 - _HOPELESS) * _rate(before):
        return f"{_rate(newest):.0f} tok/s with {newest.concurrency} at once, the incumbent has {_rate(before):.0f}"
    return ""


def _fold(ladder: Ladder, trail: Sequence[Attempt], passed: Attempt) -> tuple[Attempt, list[str]]:
    """The best attempt, and the variations that it is made of."""
    best, kept = passed, list[str]()
    for attempt in trail:
        if attempt.variation is None or attempt.outcome is not AttemptOutcome.PASSED:
            continue
        if better(attempt.load, best.load, ladder.vary_margin):
            best, kept = attempt, [*kept, attempt.variation]
    return best, kept


def _varied(ladder: Ladder, walk: Sequence[Attempt], names: Sequence[str]) -> Try:
    base = tried_as(ladder, walk[-1].rung, walk)
    args = {k: v for name in names for k, v in ladder.vary[name].args.items()}
    return replace(base, args={**base.args, **args}, insist=True, variation=names[-1] if names else None)


def _no_budget(ladder: Ladder, trail: Sequence[Attempt], spent_s: float) -> str:
    launches = sum(a.outcome is not AttemptOutcome.SKIPPED for a in trail)
    if launches >= ladder.budget.attempts:
        return f"the budget is {ladder.budget.attempts} attempts"
    return f"the budget is {ladder.budget.wall_s:.0f} s" if spent_s >= ladder.budget.wall_s else ""


def _same_point(a: LoadFigure, b: LoadFigure) -> bool:
    return (a.profile, a.concurrency) == (b.profile, b.concurrency)


def _rate(figure: LoadFigure) -> float:
    return figure.median.get("output_tokens_per_s", 0.0)


def _spread(figure: LoadFigure) -> float:
    return figure.mad.get("output_tokens_per_s", 0.0)
