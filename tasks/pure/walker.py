"""Which configuration is launched next, and when to stop: the ladder walked over what has happened (contracts §2).

`next_move` is a function of the ladder and the trail alone, so a walk can be replayed from a record: remedies are
read back from the moves that applied them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from settings.ladder import ArgValue, Edge, Ladder, Remedy
from settings.words import AttemptOutcome, Component, RunOutcome, Stage
from tasks.pure.record import Attempt, Diagnosis, Halt, HaltBy, Move

__all__ = ["End", "Step", "Try", "next_move", "tried_as"]

_FORMS = {
    "bench_client": RunOutcome.SERVING_UNMEASURED,
    "bench_invalid": RunOutcome.SERVING_UNMEASURED,
    "slo_missed": RunOutcome.SERVING_BELOW_SLO,
}


@dataclass(frozen=True, slots=True)
class Try:
    """A configuration to launch: base ← rung ← remedies so far."""

    rung: str
    args: Mapping[str, ArgValue]
    env: Mapping[str, str]
    remedies: tuple[str, ...] = ()
    insist: bool = False  # launch it although it is expected to fail: nothing better is left, or it was launched before
    variation: str | None = None  # a change around a rung that serves


@dataclass(frozen=True, slots=True)
class End:
    """The run is over."""

    outcome: RunOutcome
    halt: Halt
    winner: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What follows the trail. `move` is the edge that the last attempt took (None at the start and after a pass)."""

    move: Move | None
    then: Try | End


def next_move(
    ladder: Ladder, trail: Sequence[Attempt], *, spent_s: float = 0.0, before: int = 0,
    components: Mapping[str, Component] | None = None,
) -> Step:
    """The step after `trail`. The last attempt is passed, failed or skipped; an aborted one takes no edge.

    `spent_s`: seconds of this sitting so far, against the budget; the first `before` attempts of the trail do not count
    against it either. `components`: the part of the stack that an argument configures (from the engine file), for
    the guard.
    """
    step = _decide(ladder, trail, components or {})
    if isinstance(step.then, Try):
        end = _over_budget(ladder, trail[before:], spent_s)
        if end:
            return Step(None, end)
    return step


def _decide(ladder: Ladder, trail: Sequence[Attempt], components: Mapping[str, Component]) -> Step:
    if not trail:
        return Step(None, tried_as(ladder, ladder.start, trail))
    last = trail[-1]
    if last.outcome is AttemptOutcome.PASSED:
        kind = last.diagnosis.kind if last.diagnosis else ""
        outcome = _FORMS.get(kind, RunOutcome.SERVING)
        reason = f"'{last.rung}' passed every gate" + (f", but {kind}" if kind in _FORMS else "")
        return Step(None, End(outcome, Halt(reason=reason, by="rung"), winner=last.n))
    if last.diagnosis is None:
        raise ValueError(f"attempt {last.n} ended {last.outcome} without a diagnosis: it takes no edge")
    guarded = _guard(ladder, trail, components)
    if guarded:
        return _stop(guarded, "guard", RunOutcome.STOPPED, "guard")
    step = _follow(ladder, trail, last, last.diagnosis)
    if isinstance(step.then, End):
        return _put_off(ladder, trail, step)
    return step


def _follow(ladder: Ladder, trail: Sequence[Attempt], last: Attempt, diagnosis: Diagnosis) -> Step:
    because = f"{diagnosis.kind} ({diagnosis.component}) in {diagnosis.stage or diagnosis.phase}"
    for name, edge in _matching(ladder, last.rung, diagnosis):
        if last.outcome is AttemptOutcome.SKIPPED and (edge.remedy or edge.retry or edge.stop):
            if edge.stop is None:
                continue
            return _onward(ladder, trail, name, _following_fresh(ladder, trail), "next", "skipped: on in file order")
        if edge.stop is not None:
            if last.failed_stage is Stage.PREFLIGHT:
                reason = f"{diagnosis.means}; to try: {diagnosis.try_}" if diagnosis.try_ else diagnosis.means
                return _stop(reason, "preflight", RunOutcome.STOPPED, name)
            if not name.startswith("default."):
                leads_on = any(e.goto or e.next for e in ladder.rung[last.rung].on)
                return _stop(edge.stop, "rung", RunOutcome.STOPPED if leads_on else RunOutcome.EXHAUSTED, name)
            return _stop(edge.stop, "edge", RunOutcome.STOPPED, name)
        if edge.goto is not None:
            return _onward(ladder, trail, name, edge.goto, "goto", because)
        if edge.next:
            return _onward(ladder, trail, name, ladder.following(last.rung), "next", because)
        if edge.retry is not None:
            if sum(a.rung == last.rung and a.move is not None and a.move.move == "retry" for a in trail) < edge.retry:
                move = Move(move="retry", to=last.rung, edge=name, why=f"{because}: the same may pass")
                return Step(move, tried_as(ladder, last.rung, trail))
        elif edge.remedy is not None:
            changed = _apply(ladder, edge.remedy, trail, diagnosis)
            if changed:
                move = Move(move="remedy", to=edge.remedy, edge=name, set=changed, why=because)
                return Step(move, tried_as(ladder, last.rung, trail, move))
    return _stop("no edge for this", "edge", RunOutcome.STOPPED, "default")


def _onward(
    ladder: Ladder, trail: Sequence[Attempt], edge: str, to: str | None, how: str, because: str
) -> Step:
    """To another rung; a rung that was launched before is not launched again."""
    launched = {a.rung for a in trail if a.outcome is not AttemptOutcome.SKIPPED}
    if to is None or to in launched:
        why = "no rung is left" if to is None else f"'{to}' was tried before"
        return _stop(f"{because}; {why}", "rung", RunOutcome.EXHAUSTED, edge)
    move = Move(move="goto" if how == "goto" else "next", to=to, edge=edge, why=because)
    return Step(move, tried_as(ladder, to, trail))


def _following_fresh(ladder: Ladder, trail: Sequence[Attempt]) -> str | None:
    """The next rung in file order that the trail has not met."""
    met = {a.rung for a in trail}
    rung = ladder.following(trail[-1].rung)
    while rung in met:
        rung = ladder.following(rung)
    return rung


def _put_off(ladder: Ladder, trail: Sequence[Attempt], step: Step) -> Step:
    """Before giving up: the rungs that were put off because they were expected to fail, in file order."""
    if ladder.doomed != "last":
        return step
    launched = {a.rung for a in trail if a.outcome is not AttemptOutcome.SKIPPED}
    waiting = {a.rung for a in trail if a.outcome is AttemptOutcome.SKIPPED and a.expected} - launched
    for rung in ladder.rung:
        if rung in waiting:
            why = "nothing else is left; it was put off because it is expected to fail"
            move = Move(move="goto", to=rung, edge=step.move.edge if step.move else "doomed", why=why)
            return Step(move, tried_as(ladder, rung, trail, insist=True))
    return step


def _stop(reason: str, by: HaltBy, outcome: RunOutcome, edge: str) -> Step:
    return Step(Move(move="stop", edge=edge, why=reason), End(outcome, Halt(reason=reason, by=by)))


def _over_budget(ladder: Ladder, trail: Sequence[Attempt], spent_s: float) -> End | None:
    launches = sum(a.outcome is not AttemptOutcome.SKIPPED for a in trail)
    if launches >= ladder.budget.attempts:
        reason = f"{launches} attempts made, the budget is {ladder.budget.attempts}"
    elif spent_s >= ladder.budget.wall_s:
        reason = f"{spent_s:.0f} s spent, the budget is {ladder.budget.wall_s:.0f} s"
    else:
        return None
    return End(RunOutcome.BUDGET, Halt(reason=reason, by="budget"))


def _matching(ladder: Ladder, rung: str, diagnosis: Diagnosis) -> Iterator[tuple[str, Edge]]:
    for name, edge in ladder.edges(rung):
        if diagnosis.kind == "unknown" and not edge.kind and edge.stop is None:
            continue
        if (
            (not edge.kind or diagnosis.kind in edge.kind)
            and (not edge.component or diagnosis.component in edge.component)
            and (not edge.phase or diagnosis.phase in edge.phase)
            and (not edge.stage or diagnosis.stage in edge.stage)
            and (not edge.action or diagnosis.action in edge.action)
        ):
            yield name, edge


def tried_as(
    ladder: Ladder, rung: str, trail: Sequence[Attempt], move: Move | None = None, insist: bool = False
) -> Try:
    """What `rung` asks for now: base ← rung ← remedies of the trail (and of `move`, not yet in the trail)."""
    args: dict[str, ArgValue] = {**ladder.base.args, **ladder.rung[rung].args}
    moves = [m for m in [*(a.move for a in trail), move] if m is not None and m.move == "remedy"]
    for applied in moves:
        for arg, value in applied.set.items():
            if value is None:
                args.pop(arg, None)
            else:
                args[arg] = value
    env = {**ladder.base.env, **ladder.rung[rung].env}
    launched = any(a.rung == rung and a.outcome is not AttemptOutcome.SKIPPED for a in trail)  # then insist again
    return Try(rung, args, env, tuple(str(m.to) for m in moves), insist or launched)


def _apply(
    ladder: Ladder, name: str, trail: Sequence[Attempt], diagnosis: Diagnosis
) -> dict[str, ArgValue | None] | None:
    """The arguments that the remedy changes now; None when it is spent, at its bound, or changes nothing."""
    remedy = ladder.remedy[name]
    used = sum(a.move is not None and a.move.move == "remedy" and a.move.to == name for a in trail)
    if used >= remedy.at_most:
        return None
    now = tried_as(ladder, trail[-1].rung, trail).args
    changed: dict[str, ArgValue | None] = {arg: v for arg, v in remedy.set.items() if now.get(arg) != v}
    changed |= {arg: None for arg in remedy.unset if arg in now}
    for arg, step in remedy.step.items():
        value = _stepped(remedy, arg, Decimal(step), now.get(arg), diagnosis.value)
        if value is not None:
            changed[arg] = value
    return changed or None


def _stepped(remedy: Remedy, arg: str, step: Decimal, now: ArgValue | None, named: str | None) -> str | None:
    """The argument's next value, within floor and ceiling; None when it cannot move."""
    current = _decimal(now)
    if current is None:
        return None
    start = _decimal(named) if remedy.from_log else None
    value = current + step if start is None else start + step
    if (value - current) * step <= 0:  # the number in the log lies on the wrong side: it means something else
        value = current + step
    if arg in remedy.floor:
        value = max(value, Decimal(remedy.floor[arg]))
    if arg in remedy.ceiling:
        value = min(value, Decimal(remedy.ceiling[arg]))
    return str(value) if (value - current) * step > 0 else None


def _decimal(value: ArgValue | None) -> Decimal | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _signature(diagnosis: Diagnosis) -> tuple[str, Component, str | None, str]:
    """What two failures share when they are the same one; numbers (sizes, addresses, ids) may differ."""
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", diagnosis.evidence.text)
    return diagnosis.kind, diagnosis.component, diagnosis.evidence.frame, text


def _guard(ladder: Ladder, trail: Sequence[Attempt], components: Mapping[str, Component]) -> str | None:
    """Why the ladder cannot reach this fault: the same cause came again although its own settings had changed."""
    count = ladder.guard.same_signature
    launched = [a for a in trail if a.outcome is not AttemptOutcome.SKIPPED][-count:]
    causes = [a.diagnosis for a in launched if a.outcome is AttemptOutcome.FAILED and a.diagnosis]
    if len(causes) < count or trail[-1].outcome is AttemptOutcome.SKIPPED:
        return None
    first = causes[0]
    if first.kind in ladder.guard.exempt or first.evidence.frame is None:
        return None
    if any(_signature(d) != _signature(first) for d in causes):
        return None
    settings = [{k: v for k, v in a.asked.items() if components.get(k) == first.component} for a in launched]
    if all(s == settings[0] for s in settings):
        return None
    return (
        f"{first.kind} came from {first.evidence.frame} {count} times in a row although the settings of "
        f"{first.component} differed: the ladder does not reach this"
    )
