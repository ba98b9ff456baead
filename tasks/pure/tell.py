"""What people want to hear of a run: one word, and one paragraph that says what, since when, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from settings.words import AttemptOutcome, RunOutcome
from tasks.pure.build import SERVING
from tasks.pure.record import Diagnosis, RunRecord
from tasks.pure.report import headline

__all__ = ["News", "news"]

_NOT_SERVING = frozenset({RunOutcome.EXHAUSTED, RunOutcome.STOPPED})


@dataclass(frozen=True, slots=True)
class News:
    """`event` is the last part of the event's name: bringup.<event>."""

    event: Literal["serving", "exhausted", "regressed", "recovered"]
    payload: dict[str, str]  # `text` is the paragraph; what is not known is ""


def news(record: RunRecord, earlier: Sequence[RunRecord]) -> News | None:
    """What there is to tell of `record`. `earlier`: runs of all targets, the newest first.

    None where the run came to no decision: a lost host, a cancel or a budget says nothing of the build.
    """
    if record.outcome not in SERVING | _NOT_SERVING:
        return None
    same = [r for r in earlier if (r.target, r.ladder.name) == (record.target, record.ladder.name)]
    decided = [r for r in same if r.run_id != record.run_id and r.outcome in SERVING | _NOT_SERVING]
    good = next((r for r in decided if r.outcome in SERVING), None)
    served_before = bool(decided) and decided[0].outcome in SERVING
    if record.outcome in SERVING:
        event: Literal["serving", "exhausted", "regressed", "recovered"] = (
            "recovered" if decided and not served_before else "serving"
        )
    else:
        event = "regressed" if served_before else "exhausted"
    cause = _cause(record)
    facts = {
        "target": record.target, "ladder": record.ladder.name, "outcome": str(record.outcome), "run": record.run_id,
        "build": _build(record), "cause": cause.kind if cause else "", "text": _text(record, good, cause),
        "last_good": good.run_id if good else "", "last_good_build": _build(good) if good else "",
    }  # fmt: skip
    return News(event, facts)


def _text(record: RunRecord, good: RunRecord | None, cause: Diagnosis | None) -> str:
    said = [f"{record.target}: {headline(record)}.", f"Build {_build(record)}."]
    if record.outcome in SERVING:
        return " ".join(said)
    if good is None:
        said.append("It has never served here with this ladder.")
    else:
        when = f"{good.started_at:%Y-%m-%d %H:%M} UTC"
        said.append(f"It served last on {when} with build {_build(good)} ({good.run_id}).")
    if cause:
        said.append(f"First cause: {cause.means.rstrip('.')}.")
        if cause.try_:
            said.append(f"To do: {cause.try_.rstrip('.')}.")
    said.append(f"Evidence: bringup show {record.run_id}.")
    return " ".join(said)


def _build(record: RunRecord) -> str:
    build, source = record.build, record.source
    commit = build.commit or (source.commit if source else None)
    return " ".join(filter(None, (build.engine, build.version, commit[:12] if commit else None)))


def _cause(record: RunRecord) -> Diagnosis | None:
    """Why the install failed, else the first failure of the ladder: later rungs are only tried because of it."""
    if record.source and record.source.diagnosis:
        return record.source.diagnosis
    return next((a.diagnosis for a in record.attempts if a.outcome is AttemptOutcome.FAILED), None)
