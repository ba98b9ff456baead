"""The steps of one attempt, each from its call to its result. An expected failure is a result, never an exception."""

from dataclasses import replace
from typing import Any

from settings.suite import DecodeSuite
from settings.words import AttemptOutcome, Phase, Stage
from tasks.deadline import Deadline, pause
from tasks.decode import DecodeReport
from tasks.decode import decode as run_decode
from tasks.faults import (
    StageReport,
    Step,
    account_for,
    check_room,
    doomed,
    end_server,
    exit_text,
    gone,
    look,
    out_of_budget,
    reported,
    settled,
)
from tasks.http import open_client
from tasks.preflight import preflight as find_obstacles
from tasks.pure import cause
from tasks.pure.decode_page import call_line
from tasks.pure.diagnose import Diagnoser
from tasks.pure.plan import LaunchPlan, effective, overridden
from tasks.pure.record import Diagnosis, ReplyVerdict
from tasks.pure.suite import judged_calls
from tasks.ready import is_ready, server_info
from tasks.runlog import log
from tasks.session import Progress, Server, Session
from tasks.supervisor import Ended, NotHeld, ServerSpec
from tasks.watch import Pulse, Watch

__all__ = ["decode", "keep", "launch", "preflight", "recheck", "stop", "wait_ready", "warm_up"]


def preflight(session: Session, n: int, rung: str, plan: LaunchPlan) -> StageReport:
    """Whether anything on the host stands in the way, found in a second instead of after the load."""
    step = Step(Stage.PREFLIGHT, n, rung)
    obstacles = find_obstacles(session.host, session.target, session.engine, plan.port, deadline=session.call())
    if not obstacles:
        return step.passed()
    if not session.supervisor.renew(deadline=session.call()):
        why = "the host is not ours any more: the lease ran out, and what stands in the way may be the next run's"
        lost = cause.aborted("lease_expired", Stage.PREFLIGHT, Phase.ARGS, why)
        return step.failed(lost, outcome=AttemptOutcome.ABORTED)
    return step.failed(cause.obstructed(obstacles))


def launch(session: Session, n: int, rung: str, attempt_id: str, plan: LaunchPlan) -> StageReport:
    """Start the server, or adopt the one that carries this attempt's id: a lost reply never starts a second one."""
    step = Step(Stage.LAUNCH, n, rung)
    spec = ServerSpec(
        attempt_id, plan.argv, {**session.target.plain_env(), **plan.env}, port=plan.port, gpus=session.target.gpus
    )
    started = session.supervisor.start(spec, deadline=session.call())
    log_copy = session.folder.log_path(n, rung)
    session.folder.begin_log(log_copy)
    diagnoser = Diagnoser(session.catalogue, session.milestones, engine=session.engine.name, file=log_copy.name)
    watch = Watch(
        session.host, session.supervisor, attempt_id, session.supervisor.log_path(attempt_id), diagnoser,
        keep=lambda content: session.folder.append_log(log_copy, content),
    )  # fmt: skip
    client = open_client(session.host, plan.port, timeout_s=session.settings.call_s)
    server = Server(n, attempt_id, rung, plan, watch, client, log_copy, Deadline.after(session.ready_limit_s))
    match started:
        case NotHeld(holder):
            who = f"{holder.owner} has it" if holder else "nobody has it"
            why = f"the host is not ours any more ({who}): the lease ran out, or somebody gave it back for us"
            diagnosis = cause.aborted("lease_expired", Stage.LAUNCH, watch.cause(ended=False).phase, why)
            return step.failed(diagnosis, outcome=AttemptOutcome.ABORTED, server=server)
        case Ended(exit=ended):
            watch.look(session.call())
            diagnosis, outcome = account_for(server, Stage.LAUNCH, ended)
            return step.failed(diagnosis, outcome=outcome, server=server)
        case _:
            event = "server.adopted" if started.adopted else "server.launched"
            log.info(event, pid=started.pid, port=plan.port, argv=list(plan.argv))
            return step.passed(f"pid {started.pid}" + (", adopted" if started.adopted else ""), server=server)


def wait_ready(session: Session, server: Server) -> StageReport:
    """Until the server answers after its own warm-up, is doomed or gone, goes silent, or takes too long."""
    step = Step(Stage.READY, server.n, server.rung)
    while True:
        pulse = look(session, server)
        session.show(_progress(server, Stage.READY, pulse))
        if not pulse.alive:
            return gone(step, session, server, pulse)
        if pulse.fatal:
            if pulse.fatal_for_s >= session.settings.doom_grace_s:
                return doomed(step, session, server)
        elif pulse.status.listener in ("ours", None) and is_ready(server.client, session.engine):
            return _read_back(step, session, server)
        phase, quiet_s = pulse.progress.phase, pulse.quiet_for_s
        if not pulse.fatal:
            if session.deadline.passed:
                return out_of_budget(step, session, pulse)
            if server.ready_by.passed:
                return step.failed(_logged_or(session, server, cause.not_ready(phase, session.ready_limit_s)))
            if quiet_s > session.quiet_limit_s(phase):
                silence = cause.hung(phase, quiet_s, session.quiet_limit_s(phase))
                return step.failed(_logged_or(session, server, silence))
        pause(session.settings.poll_s, Deadline.after(session.settings.poll_s))


def warm_up(session: Session, server: Server) -> StageReport:
    """First requests, which may compile kernels: errors, silence and a dead server fail; text is judged in decode."""
    step = Step(Stage.WARMUP, server.n, server.rung)
    report = _ask(session, server, Stage.WARMUP, session.warmup_suite, session.settings.warmup_s)
    if report.kind not in ("reply_error", "hang"):
        report = replace(report, kind=None, why="")
    return _after_requests(step, session, server, report)


def decode(session: Session, server: Server) -> StageReport:
    """Whether tokens come out right."""
    step = Step(Stage.DECODE, server.n, server.rung)
    report = _ask(session, server, Stage.DECODE, session.decode_suite, session.settings.decode_s)
    return _after_requests(step, session, server, report, keep=session.decode_suite)


def recheck(session: Session, server: Server) -> StageReport:
    """Whether tokens still come out right after the load test."""
    step = Step(Stage.RECHECK, server.n, server.rung)
    report = _ask(session, server, Stage.RECHECK, session.recheck_suite, session.settings.decode_s)
    return _after_requests(step, session, server, report, keep=session.recheck_suite)


def stop(session: Session, server: Server) -> StageReport:
    """End the server and wait until its processes, GPU memory and port are gone."""
    step = Step(Stage.STOP, server.n, server.rung)
    ended = end_server(session, server)
    server.client.close()
    if ended is None or ended.left:
        why = f"left on the host: {', '.join(ended.left)}" if ended else "its end was not seen"
        return step.failed(cause.aborted("interrupted", Stage.STOP, server.watch.phase, why))
    return step.passed(exit_text(ended))


def keep(session: Session) -> bool:
    """Drop the lease, so that the server outlives the run. False: the host is not ours any more."""
    session.may_be_kept = True
    session.kept = session.supervisor.keep(deadline=session.call())
    session.may_be_kept = False
    return session.kept


# --- what the steps share -------------------------------------------------------------------------------------------


def _ask(session: Session, server: Server, stage: Stage, suite: DecodeSuite, limit_s: float) -> DecodeReport:
    def on_probe(verdict: ReplyVerdict) -> None:
        log.info("probe.judged", stage=stage, probe=verdict.id, verdict=verdict.verdict, why=verdict.why)
        if verdict.verdict != "not_run":
            session.show(Progress(server.n, server.rung, stage, f"{verdict.id}: {verdict.verdict}"))

    return run_decode(server.client, suite, deadline=session.deadline.sooner(limit_s), on_probe=on_probe)


def _after_requests(
    step: Step, session: Session, server: Server, report: DecodeReport, *, keep: DecodeSuite | None = None
) -> StageReport:
    """The log's first fatal cause comes before the judge's verdict, even if the server dies only a moment later.

    `keep`: the suite whose replies stand in the record and beside it; None keeps none.
    """
    found = _kept(step.stage, session, server, report, keep) if keep else {}
    pulse = settled(session, server, suspicious=report.server_gone or report.kind is not None)
    if not pulse.alive:
        return gone(step, session, server, pulse, **found)
    if pulse.fatal:
        return doomed(step, session, server, **found)
    if (told := reported(server)) is not None:
        return step.failed(told.model_copy(update={"stage": step.stage}), **found)
    if report.kind in ("hang", "reply_error"):
        check_room(session, report.why)
    if report.kind:
        return step.failed(cause.judged(report.kind, report.why, step.stage), **found)
    if session.deadline.passed:
        return out_of_budget(step, session, pulse, **found)
    return step.passed(**found)


def _kept(
    stage: Stage, session: Session, server: Server, report: DecodeReport, suite: DecodeSuite
) -> dict[str, Any]:
    lines = [
        call_line(stage, asking.probe.id, call, judged)
        for asking in report.askings
        for call, judged in judged_calls(asking, suite.judge)
    ]
    return {
        "decode": tuple(v.model_copy(update={"stage": stage}) for v in report.verdicts),
        "suite": report.figures.model_copy(update={"stage": stage}),
        "replies": session.folder.append_replies(server.n, lines),
    }


def _logged_or(session: Session, server: Server, silence: Diagnosis) -> Diagnosis:
    """What the log holds so far, if it names a cause: a rank that reports a fault and then hangs has that fault."""
    found = server.watch.cause(ended=True)
    if found.kind in ("none", "unknown", silence.kind):
        check_room(session, silence.means)
        return silence
    return found.model_copy(update={"stage": silence.stage, "also_seen": (*found.also_seen, silence.means)})


def _read_back(step: Step, session: Session, server: Server) -> StageReport:
    info = server_info(server.client, session.engine)
    runs = effective(info, session.engine)
    overrides = overridden(server.plan.asked, info, session.engine)
    log.info("server.ready", effective=runs)
    if overrides:
        part = session.engine.components().get(overrides[0].intent)
        return step.failed(cause.overruled(overrides, part), effective=runs)
    return step.passed(effective=runs)


def _progress(server: Server, stage: Stage, pulse: Pulse) -> Progress:
    seen = pulse.progress
    text = f"{seen.phase}: {seen.text}" if seen.text else str(seen.phase)
    return Progress(server.n, server.rung, stage, text, seen.fraction, str(seen.phase), seen.line)
