"""What a run that goes on may build on: whether it is the same run at all, and which of its attempts still count."""

from collections.abc import Sequence
from datetime import datetime

from settings.words import AttemptOutcome, RunOutcome, Stage
from tasks.pure.record import Attempt, Build, RunRecord, TargetRef

__all__ = ["decisive", "other_build", "other_inputs", "reopened", "unseen_end"]


def other_inputs(record: RunRecord, *, target: TargetRef, ladder_sha256: str) -> str | None:
    """Why these inputs are not those that the run began with; None = they are."""
    if record.asked is None:
        return "was written by a release that could not resume"
    if record.asked.target_ref != target:
        was, now = record.asked.target_ref.model_dump(), target.model_dump()
        changed = ", ".join(f"{name} was {was[name]!r}, is {now[name]!r}" for name in was if was[name] != now[name])
        return f"ran on another target ({changed}): begin a new run"
    if record.ladder.sha256 != ladder_sha256:
        return f"walked another version of ladder '{record.ladder.name}': begin a new run"
    return None


def other_build(record: RunRecord, build: Build) -> str | None:
    """Why what the run has found does not hold for the build that is installed now; None = it does."""
    known = record.build.model_dump(exclude={"engine"}, exclude_none=True)
    changed = [f"{name} was {was}, is {getattr(build, name)}" for name, was in known.items()
               if getattr(build, name) != was]  # fmt: skip
    return f"the build on the host is another ({changed[0]}): begin a new run" if changed else None


def reopened(record: RunRecord, now: datetime) -> RunRecord:
    """The record of a run that goes on: all attempts stay, its end is taken back."""
    open_again = {
        "outcome": RunOutcome.RUNNING, "ended_at": None, "halt": None, "winner": None, "compared": None,
        "confirmed": None,
    }  # fmt: skip
    return record.model_copy(update={**open_again, "resumed_at": (*record.resumed_at, now)})


def unseen_end(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last attempt, when nobody of us saw its server's end: a pass that was kept, or one that we lost sight of."""
    last = attempts[-1] if attempts else None
    return last if last and last.outcome in (AttemptOutcome.PASSED, AttemptOutcome.ABORTED) else None


def decisive(attempts: Sequence[Attempt], *, serves: bool) -> list[Attempt]:
    """The earlier attempts that the next move rests on: what we ended ourselves, or what the host was in the way of,
    says nothing of its rung.

    `serves`: the server of the last one still runs. A pass counts only as long as it does.
    """
    counting = [
        a for a in attempts if a.outcome in (AttemptOutcome.FAILED, AttemptOutcome.SKIPPED) and not _refused(a)
    ]
    passed = bool(attempts) and attempts[-1].outcome is AttemptOutcome.PASSED
    return [*counting, attempts[-1]] if serves and passed else counting


def _refused(a: Attempt) -> bool:
    """The host was in its way, and that ended the run. Where the ladder went on from there its step stays."""
    return a.failed_stage is Stage.PREFLIGHT and (a.move is None or a.move.move == "stop")
