"""What people want to hear of a run: one word, and one paragraph that says what, since when, and what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from settings.words import AttemptOutcome
from tasks.pure.build import DECIDED, SERVING
from tasks.pure.comparison import Finding
from tasks.pure.record import Diagnosis, RunRecord
from tasks.pure.report import headline

__all__ = ["News", "news"]

_MOST = 4  # findings in the paragraph; the record has all


@dataclass(frozen=True, slots=True)
class News:
    """`event` is the last part of the event's name: bringup.<event>."""

    event: Literal["serving", "exhausted", "regressed", "recovered"]
    payload: dict[str, str]  # `text` is the paragraph; what is not known is ""


def news(record: RunRecord, earlier: Sequence[RunRecord]) -> News | None:
    """What there is to tell of `record`. `earlier`: runs of all targets, the newest first.

    None where the run came to no decision: a lost host, a cancel or a budget says nothing of the build. One that serves
    has regressed where it is worse than the nights before in a way that the run before was not.
    """
    if record.outcome not in DECIDED:
        return None
    same = [r for r in earlier if (r.target, r.ladder.name) == (record.target, record.ladder.name)]
    decided = [r for r in same if r.run_id != record.run_id and r.confirms is None and r.outcome in DECIDED]
    good = next((r for r in decided if r.outcome in SERVING), None)
    served_before = bool(decided) and _was_good(decided[0])
    event: Literal["serving", "exhausted", "regressed", "recovered"]
    if record.outcome in SERVING and decided and not served_before:
        event = "recovered"
    elif record.outcome in SERVING:
        event = "regressed" if _fresh(record, decided) else "serving"
    else:
        event = "regressed" if served_before else "exhausted"
    cause, confirmed = _cause(record), record.confirmed
    facts = {
        "target": record.target, "ladder": record.ladder.name, "outcome": str(record.outcome), "run": record.run_id,
        "build": _build(record), "cause": cause.kind if cause else "", "text": _text(record, good, cause),
        "last_good": good.run_id if good else "", "last_good_build": _build(good) if good else "",
        "verdict": confirmed.verdict if confirmed and event == "regressed" else "",
    }  # fmt: skip
    return News(event, facts)


def _was_good(run: RunRecord) -> bool:
    """Whether its build served, as far as anybody knows: what failed once and not again was noise."""
    return run.outcome in SERVING or (run.confirmed is not None and run.confirmed.verdict == "noise")


def _fresh(record: RunRecord, decided: Sequence[RunRecord]) -> set[tuple[str, str, str]]:
    """What is worse, and was not so in the run before: a number alarms on its first night, not on each."""
    before = decided[0] if decided else None
    noise = before is not None and before.confirmed is not None and before.confirmed.verdict == "noise"
    known = set() if before is None or noise else {f.key for f in _worse(before)}
    return {f.key for f in _worse(record)} - known


def _worse(record: RunRecord) -> tuple[Finding, ...]:
    return record.compared.worse if record.compared else ()


def _text(record: RunRecord, good: RunRecord | None, cause: Diagnosis | None) -> str:
    said = [f"{record.target}: {headline(record)}.", f"Build {_build(record)}."]
    if record.outcome not in SERVING:
        if good is None:
            said.append("It has never served here with this ladder.")
        else:
            when = f"{good.started_at:%Y-%m-%d %H:%M} UTC"
            said.append(f"It served last on {when} with build {_build(good)} ({good.run_id}).")
    said.extend(_differences(record))
    if record.confirmed:
        said.append(f"A/B/A: {record.confirmed.verdict}: {record.confirmed.why.rstrip('.')}.")
        if record.confirmed.verdict == "code":
            said.append(f"Which commit: bringup bisect {record.run_id}.")
    if record.outcome not in SERVING:
        if cause:
            said.append(f"First cause: {cause.means.rstrip('.')}.")
            if cause.try_:
                said.append(f"To do: {cause.try_.rstrip('.')}.")
        said.append(f"Evidence: bringup show {record.run_id}.")
    elif _worse(record):
        said.append(f"Evidence: bringup compare {record.run_id}.")
    return " ".join(said)


def _differences(record: RunRecord) -> Iterator[str]:
    """What the comparison found; of a run that does not serve, that much is told already."""
    if record.compared is None:
        return
    for direction in ("worse", "better"):
        found = [f for f in record.compared.findings if f.direction == direction and f.what != "outcome"]
        if found:
            more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
            told = "; ".join(f.said.rstrip(".") for f in found[:_MOST])
            yield f"{direction.capitalize()} than in {record.compared.last_good}: {told}{more}."


def _build(record: RunRecord) -> str:
    build, source = record.build, record.source
    commit = build.commit or (source.commit if source else None)
    return " ".join(filter(None, (build.engine, build.version, commit[:12] if commit else None)))


def _cause(record: RunRecord) -> Diagnosis | None:
    """Why the install failed, else the first failure of the ladder: later rungs are only tried because of it."""
    if record.source and record.source.diagnosis:
        return record.source.diagnosis
    return next((a.diagnosis for a in record.attempts if a.outcome is AttemptOutcome.FAILED), None)
