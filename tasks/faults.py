"""How a step ends: its report, and the ways in which a server can be lost in the middle of one."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from settings.words import AttemptOutcome, Stage, StageOutcome
from tasks.deadline import Deadline, pause
from tasks.host import DeadlinePassed, HostError
from tasks.pure import cause
from tasks.pure.record import (
    AccuracyResult,
    BenchPoint,
    Diagnosis,
    LoadSummary,
    RawFile,
    ReplyVerdict,
    StageResult,
    SuiteFigures,
)
from tasks.runlog import log
from tasks.session import Server, Session
from tasks.supervisor import Busy, ExitInfo
from tasks.watch import Pulse

__all__ = [
    "StageReport", "Step", "account_for", "check_room", "doomed", "end_server", "exit_text", "gone", "look",
    "out_of_budget", "reported", "settled", "try_to_end",
]  # fmt: skip


_ROOM_KIB = 4096  # less is a full disk: a log's last lines need some pages


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a step found. `diagnosis` None = passed."""

    result: StageResult
    diagnosis: Diagnosis | None = None
    outcome: AttemptOutcome = AttemptOutcome.PASSED  # what the attempt is now
    effective: dict[str, Any] = field(default_factory=dict)
    decode: tuple[ReplyVerdict, ...] = ()
    suite: SuiteFigures | None = None
    replies: RawFile | None = None
    bench: tuple[BenchPoint, ...] = ()
    load: LoadSummary | None = None
    accuracy: AccuracyResult | None = None
    server: Server | None = None


class Step:
    """Times a step and makes its report."""

    def __init__(self, stage: Stage, n: int, rung: str) -> None:
        self.stage, self.n, self.rung = stage, n, rung
        self._at, self._began = datetime.now(UTC), time.monotonic()
        log.info("stage.started", stage=stage)

    def passed(self, reason: str = "", **found: Any) -> StageReport:
        return self._report(StageOutcome.PASSED, reason, **found)

    def failed(self, diagnosis: Diagnosis, **found: Any) -> StageReport:
        found.setdefault("outcome", AttemptOutcome.FAILED)
        return self._report(StageOutcome.FAILED, diagnosis.means, diagnosis=diagnosis, **found)

    def _report(self, ended: StageOutcome, reason: str, **found: Any) -> StageReport:
        wall_s = round(time.monotonic() - self._began, 3)
        log.info("stage.ended", stage=self.stage, outcome=ended, wall_s=wall_s, reason=reason)
        result = StageResult(stage=self.stage, outcome=ended, started_at=self._at, wall_s=wall_s, reason=reason)
        return StageReport(result, **found)


def look(session: Session, server: Server) -> Pulse:
    """One look at the server. A host that is too busy to answer is asked again for as long as a lease lasts.

    Raises: HostError; DeadlinePassed after that.
    """
    patience = Deadline.after(session.target.lease_s)
    while True:
        try:
            return server.watch.look(session.call())
        except DeadlinePassed as e:
            if patience.passed:
                raise
            log.warning("host.slow", why=str(e))


def settled(session: Session, server: Server, *, suspicious: bool) -> Pulse:
    """One look at the server; after a failure several, until it shows a cause or its grace is over."""
    settle = Deadline.after(session.settings.doom_grace_s)
    while True:
        pulse = look(session, server)
        if not pulse.alive or pulse.fatal or not suspicious or settle.passed:
            return pulse
        pause(session.settings.poll_s, settle)


def reported(server: Server) -> Diagnosis | None:
    """A fault that the log of a living server tells, e.g. NaN that was sanitised: good replies do not outweigh it."""
    found = server.watch.cause(ended=False)
    return found if found.kind not in ("none", "unknown", "bench_client") else None


def gone(step: Step, session: Session, server: Server, pulse: Pulse, **found: Any) -> StageReport:
    """The server ended by itself, or by our supervisor."""
    ended = pulse.status.exit
    if ended is None or ended.clean is None:
        ended = try_to_end(session, server) or ended
    diagnosis, outcome = account_for(server, step.stage, ended)
    if diagnosis.kind == "unknown":
        check_room(session, diagnosis.means)
    return step.failed(diagnosis, outcome=outcome, **found)


def check_room(session: Session, seen: str) -> None:
    """A server that names no cause on a full disk is no failure of its rung. Raises: HostError, which ends the run.

    `seen`: what it would have failed of; a host that does not answer takes nothing away from that.
    """
    folder = session.supervisor.state_dir
    try:
        asked = session.host.run(["df", "--output=avail", "--block-size=1K", folder], deadline=session.call())
    except HostError as e:
        log.warning("host.room_unknown", why=str(e))
        return
    free = asked.out.split()
    if free and free[-1].isdigit() and int(free[-1]) < _ROOM_KIB:
        full = f"{session.host.name}: the disk that holds {folder} is full, so the server's log may lack the cause"
        raise HostError(f"{full} (seen: {seen}); make room there, then go on with `bringup run --resume`")


def doomed(step: Step, session: Session, server: Server, **found: Any) -> StageReport:
    """A fatal line stands in the log: give it its grace, end the server, and judge all that was written by then."""
    grace = Deadline.after(session.settings.doom_grace_s)
    while True:
        pulse = look(session, server)
        if not pulse.alive or pulse.fatal_for_s >= session.settings.doom_grace_s or grace.passed:
            break
        pause(min(session.settings.poll_s, 0.2), grace)
    try_to_end(session, server)
    diagnosis = server.watch.cause(ended=True).model_copy(update={"stage": step.stage})
    return step.failed(diagnosis, **found)


def try_to_end(session: Session, server: Server) -> ExitInfo | None:
    """End the server; if that fails, the step `stop` comes to it again, and the cause that was found is not lost."""
    try:
        return end_server(session, server)
    except HostError as e:
        log.warning("server.not_stopped", why=str(e))
        return None


def out_of_budget(step: Step, session: Session, pulse: Pulse, **found: Any) -> StageReport:
    why = f"the budget of {session.ladder.budget.wall_s:.0f} s ran out in {step.stage}"
    diagnosis = cause.aborted("interrupted", step.stage, pulse.progress.phase, why)
    return step.failed(diagnosis, outcome=AttemptOutcome.ABORTED, **found)


def account_for(server: Server, stage: Stage, ended: ExitInfo | None) -> tuple[Diagnosis, AttemptOutcome]:
    """Why a server is gone: our own doing, else the log's first cause, else unknown (contracts §1)."""
    found = server.watch.cause(ended=True, exited=True)
    if ended is not None and ended.by != "self":
        kind = "interrupted" if ended.by == "stop" else "lease_expired"  # the supervisor's death is the host's, too
        why = f"the server was ended by us, not by a fault of its own ({exit_text(ended)})"
        if ended.by == "supervisor" and not ended.why:
            why = "our supervisor on the host was gone (killed, or the host went down), and the server with it"
        return cause.aborted(kind, stage, found.phase, why), AttemptOutcome.ABORTED
    if found.kind in ("none", "unknown") and ended is None:  # no rung's failure: the host itself cannot say
        why = "nobody on the host could say how the server ended: is its disk full, or our supervisor gone?"
        return cause.aborted("lease_expired", stage, found.phase, why), AttemptOutcome.ABORTED
    if found.kind in ("none", "unknown"):
        unknown = cause.ended_without_cause(stage, found.phase, exit_text(ended))
        seen = {"evidence": found.evidence, "also_seen": found.also_seen}
        return unknown.model_copy(update=seen), AttemptOutcome.FAILED
    return found.model_copy(update={"stage": stage}), AttemptOutcome.FAILED


def end_server(session: Session, server: Server) -> ExitInfo | None:
    """Stop the server, wait until the host is clean of it, and read the rest of its log."""
    ended = session.supervisor.stop(server.id, deadline=Deadline.after(session.settings.stop_s))
    if isinstance(ended, Busy):
        log.warning("server.not_ours", owner=ended.holder.owner)
        return None
    server.watch.look(session.call())
    if ended is not None:
        log.info("server.stopped", by=ended.by, code=ended.code, signal=ended.signal, left=list(ended.left))
    return ended


def exit_text(ended: ExitInfo | None) -> str:
    """E.g. "exit 137", "signal 9", with who asked for it."""
    if ended is None:
        return "nobody saw how"
    if ended.signal is not None:
        how = f"signal {ended.signal}"
    else:
        how = "gone" if ended.code is None else f"exit {ended.code}"
    by = "" if ended.by == "self" else f", by {ended.by}"
    return how + by + (f": {ended.why}" if ended.why else "")
