"""Why this branch: the run in ten lines, each move with the evidence that it rests on."""

from collections.abc import Sequence
from itertools import groupby

from settings.words import AttemptOutcome
from tasks.pure.names import state_name
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.report import actual_backend, headline

__all__ = ["LINES", "explain"]

LINES = 10
_LONGEST = 160  # characters of an evidence line


def explain(record: RunRecord) -> tuple[str, ...]:
    """At most ten lines: the headline, one for each attempt (skipped ones together), and who ended the run."""
    told: list[str] = []
    for skips, group in groupby(record.attempts, key=lambda a: a.outcome is AttemptOutcome.SKIPPED):
        attempts = list(group)
        told += [_skips(attempts)] if skips else [_attempt(a) for a in attempts]
    room = LINES - 2
    if len(told) > room:
        first = room // 2
        last = room - first - 1
        told = [*told[:first], f"   … {len(told) - first - last} more, all told by `bringup show` …", *told[-last:]]
    return (headline(record), *told, _end(record))


def _skips(attempts: Sequence[Attempt]) -> str:
    numbers = f"{attempts[0].n}" if len(attempts) == 1 else f"{attempts[0].n}-{attempts[-1].n}"
    why = attempts[-1].diagnosis
    return f"{numbers}. {', '.join(a.rung for a in attempts)}: skipped" + (f", {why.means}" if why else "")


def _attempt(a: Attempt) -> str:
    backend = actual_backend(a)
    said = f"{a.n}. {a.rung}" + (f" ({backend})" if backend else "")
    found = a.diagnosis
    if a.outcome is AttemptOutcome.PASSED or found is None:
        return f"{said}: every gate passed" + (f", but {found.means}" if found else "")
    said += f": {state_name(a.outcome, found)} in {a.failed_stage or found.phase}"
    return f"{said}{_then(a)}; {_evidence(a)}"


def _then(a: Attempt) -> str:
    if a.move is None:
        return ""
    return f" → {a.move.move} {a.move.to or ''}".rstrip() + f" by {a.move.edge}"


def _evidence(a: Attempt) -> str:
    found = a.diagnosis
    if found is None or not found.evidence.text:
        return f"evidence: {found.means if found else 'none'}"
    at = found.evidence
    where = " ".join(x for x in (f"line {at.line}" if at.line else "", at.rank or "") if x)
    text = " ".join(at.text.split())
    return f"{where or 'evidence'}: {text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}"


def _end(record: RunRecord) -> str:
    if record.halt is None:
        return "No end is written: the run is still going on, or it was killed."
    return f"Ended by {record.halt.by}: {record.halt.reason}"
