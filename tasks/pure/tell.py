"""What people want to hear of a run: one word, and one paragraph that says what, since when, and what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from settings.words import AttemptOutcome
from tasks.pure.build import DECIDED, SERVING
from tasks.pure.comparison import Finding
from tasks.pure.history import winner_of
from tasks.pure.record import Diagnosis, RunRecord
from tasks.pure.report import actual_backend, headline

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
    bad_since = _bad_since(decided) if event == "recovered" else None
    since = bad_since or good
    to_do = _to_do(record, good, cause)
    facts = {
        "target": record.target, "ladder": record.ladder.name, "outcome": str(record.outcome), "run": record.run_id,
        "build": _build(record), "cause": cause.kind if cause else "",
        "rung": won.rung if (won := winner_of(record)) else "", "backend": (actual_backend(won) or "") if won else "",
        "last_good": good.run_id if good else "", "last_good_build": _build(good) if good else "",
        "since": _when(since) if since else "",
        "verdict": confirmed.verdict if confirmed and event == "regressed" else "",
        "moved": "; ".join(confirmed.moved) if confirmed else "", "to_do": to_do,
        "text": _text(record, good, bad_since, cause, to_do),
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


def _text(
    record: RunRecord, good: RunRecord | None, bad_since: RunRecord | None, cause: Diagnosis | None, to_do: str
) -> str:
    serves, confirmed = record.outcome in SERVING, record.confirmed
    said = [f"{record.target}: {headline(record)}.", f"Build {_build(record)}."]
    if bad_since is not None:
        said.append(f"It had not served since {_when(bad_since)} ({bad_since.run_id}).")
    if not serves and good is None:
        said.append("It has never served here with this ladder.")
    elif good is not None and (not serves or _worse(record)):
        said.append(f"It served last on {_when(good)} with build {_build(good)} ({good.run_id}).")
    said.extend(_differences(record))
    if confirmed:
        said.append(f"A/B/A: {confirmed.verdict}: {confirmed.why.rstrip('.')}.")
        if confirmed.moved:
            more = f"; and {len(confirmed.moved) - _MOST} more" if len(confirmed.moved) > _MOST else ""
            said.append(f"Moved: {'; '.join(confirmed.moved[:_MOST])}{more}.")
    if not serves and cause:
        said.append(f"First cause: {cause.means.rstrip('.')}.")
    if to_do:
        said.append(f"To do: {to_do.rstrip('.')}.")
    if not serves or _worse(record):
        said.append(f"Evidence: bringup {'compare' if serves else 'show'} {record.run_id}.")
    return " ".join(said)


def _to_do(record: RunRecord, good: RunRecord | None, cause: Diagnosis | None) -> str:
    """What a person does next: what A/B/A says comes before the cure of a cause."""
    verdict = record.confirmed.verdict if record.confirmed else None
    cure = cause.try_ if cause and record.outcome not in SERVING else ""
    if record.obstacle and verdict in (None, "host"):
        return cure or f"clear that away on {record.target}, then run again"
    if verdict == "host":
        return f"look at {record.target} itself (driver, clocks, temperature, other users): the code did not do it"
    if verdict == "code":
        asked = any(f.what.startswith("rung ") or f.kind == "figure" for f in _worse(record))
        steps = [f"find the commit: bringup bisect {record.run_id}"] if asked else [cure.rstrip(".")] if cure else []
        if good and good.source:
            steps.append(f"until then run the last good one: --ref {good.source.commit or good.source.ref}")
        return "; ".join(steps)
    if verdict == "unclear" or (verdict is None and record.outcome in SERVING and _worse(record)):
        again = f" --ref {record.source.commit or record.source.ref} --force --confirm" if record.source else ""
        target = record.asked.target if record.asked else record.target
        return f"run it once more: bringup run --target {target}{again}"
    return "" if verdict == "noise" else cure


def _bad_since(decided: Sequence[RunRecord]) -> RunRecord | None:
    """The first of the runs just before this one that did not serve."""
    bad = list(takewhile(lambda run: not _was_good(run), decided))
    return bad[-1] if bad else None


def _when(run: RunRecord) -> str:
    return f"{run.started_at:%Y-%m-%d %H:%M} UTC"


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
    """Why the install failed; else why the rung failed that broke tonight; else the ladder's first failure.

    Where a rung has always failed the news is another one: the last failure of the first that is worse.
    """
    if record.source and record.source.diagnosis:
        return record.source.diagnosis
    failed = [a for a in record.attempts if a.outcome is AttemptOutcome.FAILED]
    broke = next((f.what.removeprefix("rung ") for f in _worse(record) if f.what.startswith("rung ")), None)
    news = [a.diagnosis for a in failed if a.rung == broke]
    return news[-1] if news else next((a.diagnosis for a in failed), None)
