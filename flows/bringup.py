"""The flow: walk the ladder, one subflow an attempt, and leave a record whatever happens."""

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, runtime
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed
from prefect.utilities.annotations import quote

from flows.artifacts import Bars, name_attempt, quietly, show_attempt, show_branch, show_winner
from flows.listeners import LISTENERS, SHOW
from settings.inputs import DEFAULT_LADDER, Inputs, load_inputs
from settings.source import BadInput
from settings.words import AttemptOutcome, RunOutcome, Stage
from tasks import steps
from tasks.attempt import Book, skipped
from tasks.faults import StageReport
from tasks.host import HostError, HostKeyRefused, HostLost, HostUnreachable
from tasks.opening import HostBusy, open_session, remember_build, seen_build
from tasks.pure.capabilities import Capabilities
from tasks.pure.expect import cannot_serve
from tasks.pure.ladder_plan import check_args
from tasks.pure.lock import differences, lock_of, lock_toml, replay
from tasks.pure.names import RUN_STATES, state_name
from tasks.pure.plan import LaunchPlan, Unspellable, Wanted, build_plan
from tasks.pure.record import Attempt, Build, Halt, HostSummary, LadderRef, RunRecord, SuiteRef
from tasks.pure.redact import Redactor
from tasks.pure.report import headline
from tasks.pure.tuning import again, incumbent, next_step
from tasks.pure.walker import End, Try
from tasks.runlog import RunLog, log
from tasks.session import Session
from tasks.store import RunFolder, runs_root

__all__ = ["RunEnd", "attempt", "bringup"]


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What the flow's state carries."""

    outcome: RunOutcome
    folder: str
    halt: Halt


def _run_name() -> str:
    """E.g. "gpu8-glm5-sm120", also where target and ladder are paths."""
    told = runtime.flow_run.get_parameters()
    return f"{Path(told['target']).stem}-{Path(told['ladder']).stem}"


@flow(name="glm5-bringup", flow_run_name=_run_name, retries=0, persist_result=False)
def bringup(
    target: str = "rehearsal", ladder: str = DEFAULT_LADDER, runs: str | None = None, keep: bool = False,
    lock: str | None = None,
) -> State[RunEnd]:
    """Bring a model up on a host: try the ladder's rungs until one serves right tokens, and say why.

    Args:
        target: name in settings/targets/, or a path: the host and its model
        ladder: name in settings/ladders/, or a path: the decision tree
        runs: folder for records and logs; default `$BRINGUP_HOME/runs` or `./runs`
        keep: leave the server running after it passed (end it with `bringup stop`)
        lock: path of a run.lock.toml: exactly that configuration is run, and no ladder
    """
    inputs = load_inputs(target, ladder, lock)
    now = datetime.now(UTC)
    run_id = f"{now:%Y%m%d-%H%M%S}-{inputs.target.name}-{secrets.token_hex(2)}"
    redactor = _redactor(inputs)
    folder = RunFolder(runs_root(runs), run_id, redactor)
    with RunLog(folder.events_path, run_id, redactor, _prefect_listener(), *LISTENERS.get()):
        return _Run(inputs, folder, run_id, now, keep).go()


class _Run:
    """One run: its record, from the first line to the last."""

    def __init__(self, inputs: Inputs, folder: RunFolder, run_id: str, now: datetime, keep: bool) -> None:
        self.inputs, self.folder, self.keep = inputs, folder, keep
        self.trail: list[Attempt] = []
        self.book: Book | None = None
        self.record = RunRecord(
            run_id=run_id, started_at=now, target=inputs.target.name,
            ladder=LadderRef(name=inputs.ladder_name, sha256=inputs.ladder_sha256, text=inputs.ladder_text),
            build=Build(engine=inputs.engine.name), host=HostSummary(name=inputs.target.name),
            lease_s=inputs.target.lease_s,
            suites={role: SuiteRef(name=name, sha256=sha256) for role, (name, sha256) in inputs.suites.items()},
        )  # fmt: skip

    def go(self) -> State[RunEnd]:
        self._store()
        log.info("run.started", target=self.inputs.target.name, ladder=self.inputs.ladder_name, folder=self.folder.path)
        try:
            end = self._host_taken()
        except HostBusy as e:
            end = End(RunOutcome.HOST_BUSY, Halt(reason=str(e), by="host"))
        except (HostUnreachable, HostKeyRefused, HostLost) as e:
            log.warning("host.lost", why=str(e))
            end = End(RunOutcome.HOST_LOST, Halt(reason=str(e), by="host"))
        except HostError as e:  # it answers, but cannot do its part: a full disk, no Python, a call that took too long
            end = End(RunOutcome.ERROR, Halt(reason=str(e), by="host"))
        except Exception as e:
            if (signal := _signal_behind(e)) is not None:
                self._ended(End(RunOutcome.CANCELLED, Halt(reason="cancelled or interrupted", by="user")))
                raise signal from e
            reason = str(e) if isinstance(e, BadInput) else f"{type(e).__name__}: {e}"
            self._ended(End(RunOutcome.ERROR, Halt(reason=reason, by="error")))
            raise
        except BaseException:
            self._ended(End(RunOutcome.CANCELLED, Halt(reason="cancelled or interrupted", by="user")))
            raise
        self._ended(end)
        self._tell()
        found = RunEnd(end.outcome, str(self.folder.path), end.halt)
        name = RUN_STATES.get(end.outcome, str(end.outcome).capitalize())
        make: Any = Completed if name == "Serving" else Failed
        return make(name=name, message=headline(self.record), data=found)  # type: ignore[no-any-return]

    def _host_taken(self) -> End:
        with open_session(self.inputs, self.folder, self.record.run_id, show=Bars(SHOW.get())) as session:
            as_it_is: Any = quote(session)  # Prefect would walk through it to look for futures
            session.capabilities = steps.probe(as_it_is, self.inputs.target.name)
            build = session.capabilities.build
            session.new_build = not seen_build(session, build)
            self.record = self.record.model_copy(
                update={"build": build, "host": session.capabilities.summary(self.inputs.target.name)}
            )
            if self.inputs.settings.redact_hosts and self.record.host.hostname:
                self.folder.redactor.hide(self.record.host.hostname)
            if self.inputs.lock:
                differs = differences(
                    self.inputs.lock, build, self.record.host, self.inputs.target.env, self.record.suites
                )
                self.record = self.record.model_copy(update={"differs": differs})
                log.info("lock.compared", differs=list(differs))
            self._store()
            log.info("host.probed", version=build.version, problems=list(session.capabilities.problems))
            check_args(session.ladder, session.engine, session.capabilities, file=self.inputs.ladder_file)
            refused = cannot_serve(session.engine, session.capabilities)
            if refused:
                return End(RunOutcome.STOPPED, Halt(reason=refused, by="preflight"))
            return self._walk(session)

    def _walk(self, session: Session) -> End:
        """The loop of the whole program: the trail decides the next try, the try extends the trail."""
        components = session.engine.components()
        while True:
            spent_s = session.ladder.budget.wall_s - session.deadline.left_s
            step = next_step(session.ladder, self.trail, spent_s=spent_s, components=components)
            if self.trail and step.move:
                self.trail[-1] = self.trail[-1].model_copy(update={"move": step.move})
                log.info("rung.left", rung=self.trail[-1].rung, **step.move.model_dump(include={"move", "to", "why"}))
                if step.move.move == "remedy":
                    log.info("remedy.applied", remedy=step.move.to, set=step.move.set)
                self._store()
            if isinstance(step.then, End):
                return self._kept(session, step.then)
            best = incumbent(session.ladder, self.trail) if step.then.variation else None
            session.rival = best.load if best else None
            self.trail.append(self._try(session, step.then, keep=self.keep and not session.ladder.vary))
            self._store()
            if self.trail[-1].outcome is AttemptOutcome.PASSED:
                remember_build(session, self.record.build)
            if self.trail[-1].outcome is AttemptOutcome.ABORTED:
                return self._aborted(session, self.trail[-1])

    def _kept(self, session: Session, end: End) -> End:
        """After variations the winner's server is gone: one that is to stay is launched anew."""
        best = again(session.ladder, self.trail) if self.keep and session.ladder.vary and end.winner else None
        if best is None:
            return end
        session.rival = None
        self.trail.append(self._try(session, best, keep=True))
        self._store()
        last = self.trail[-1]
        if last.outcome is AttemptOutcome.PASSED:
            return End(end.outcome, end.halt, winner=last.n)
        if last.outcome is AttemptOutcome.ABORTED:
            return self._aborted(session, last)
        return End(RunOutcome.STOPPED, Halt(reason=f"{end.halt.reason}, and it did not pass again", by="rung"))

    def _try(self, session: Session, wanted: Try, *, keep: bool) -> Attempt:
        n = len(self.trail) + 1
        assert session.capabilities is not None
        plan = replay(self.inputs.lock) if self.inputs.lock else _planned(session, session.capabilities, wanted)
        insist = wanted.insist or session.ladder.doomed == "try"
        if isinstance(plan, Unspellable) or (plan.doomed and not insist):
            entry = skipped(n, wanted, plan)
            log.info("rung.skipped", rung=wanted.rung, why=entry.diagnosis.means if entry.diagnosis else "")
            return entry
        self.book = Book(session, n, wanted, plan)
        _result(attempt(self.book, n, wanted.rung, keep, return_state=True))
        entry, self.book = self.book.attempt(), None
        return entry

    def _aborted(self, session: Session, last: Attempt) -> End:
        """An attempt that we ended ourselves takes no edge."""
        why = last.diagnosis.means if last.diagnosis else ""
        if last.diagnosis and last.diagnosis.kind == "lease_expired":
            log.warning("lease.expired", why=why)
            return End(RunOutcome.HOST_LOST, Halt(reason=why, by="host"))
        best = incumbent(session.ladder, self.trail)
        if session.deadline.passed and best and not self.keep:
            return End(RunOutcome.SERVING, Halt(reason=f"{why}; '{best.rung}' had passed before", by="budget"), best.n)
        if session.deadline.passed:
            return End(RunOutcome.BUDGET, Halt(reason=why, by="budget"))
        return End(RunOutcome.CANCELLED, Halt(reason=why, by="user"))

    def _close_book(self, why: str) -> None:
        """An attempt that the end of the run cut short is stored as aborted."""
        if self.book is not None:
            self.book.abort("interrupted", why)
            self.trail.append(self.book.attempt())
            self.book = None

    def _ended(self, end: End) -> None:
        """Write the end down. No network here: on a signal there are seconds, and the first error stays the first."""
        self._close_book(end.halt.reason)
        self.record = self.record.model_copy(
            update={"outcome": end.outcome, "halt": end.halt, "winner": end.winner, "ended_at": datetime.now(UTC)}
        )
        self._store()
        log.info("record.written", path=self.folder.record_path, report=self.folder.report_path)
        log.info(
            "run.ended", outcome=end.outcome, headline=headline(self.record), reason=end.halt.reason, by=end.halt.by
        )

    def _tell(self) -> None:
        """Page, lock and artifacts. The record is written by now."""
        quietly(lambda: self.folder.write_page(self.record))
        if self.record.winner:
            quietly(lambda: self.folder.write_lock(lock_toml(lock_of(self.record))))
        quietly(lambda: show_branch(self.record))
        quietly(lambda: show_winner(self.record, self.folder.path))

    def _store(self) -> None:
        self.record = self.folder.write_record(self.record.model_copy(update={"attempts": tuple(self.trail)}))


@flow(name="attempt", flow_run_name="{n}-{rung}", retries=0, validate_parameters=False, persist_result=False)
def attempt(book: Book, n: int, rung: str, keep: bool) -> State[None]:
    """One launch, its gates, and its end. The book holds what was found; the state's name is the reason."""
    session = book.session
    log.info("attempt.started", n=n, rung=rung, remedies=list(book.wanted.remedies))
    _run_gates(book)  # on an error or a signal the session says the last word to the host (tasks/opening.py)
    if book.outcome is AttemptOutcome.PASSED and keep:
        session.kept = _result(steps.keep(book, return_state=True))
        if not session.kept:
            book.abort("lease_expired", "it passed, and could not be kept: the host is not ours any more")
    elif book.server:
        book.add(_report(steps.stop(book, return_state=True)))
        session.running = None
    entry = session.folder.redactor.model(book.attempt())
    reason = entry.diagnosis.means if entry.diagnosis else "every gate passed"
    log.info("attempt.ended", n=n, rung=rung, outcome=entry.outcome, reason=reason)
    if entry.diagnosis:
        found = entry.diagnosis
        log.info("diagnosis.made", **found.model_dump(include={"kind", "component", "phase", "means"}))
    quietly(lambda: show_attempt(entry))
    quietly(lambda: name_attempt(entry))
    name = state_name(entry.outcome, entry.diagnosis)
    make: Any = Completed if entry.outcome is AttemptOutcome.PASSED else Failed
    return make(name=name, message=reason)  # type: ignore[no-any-return]


def _run_gates(book: Book) -> None:
    """Preflight, launch, and the gates of the ladder in their order; the first that fails ends it."""
    if _failed(book.add(_report(steps.preflight(book, return_state=True)))):
        return
    book.session.running = book.id
    if _failed(book.add(_report(steps.launch(book, return_state=True)))):
        return
    gates: dict[Stage, Any] = {
        Stage.READY: steps.wait_ready, Stage.WARMUP: steps.warm_up, Stage.DECODE: steps.decode,
        Stage.ACCURACY: steps.accuracy, Stage.BENCH: steps.bench, Stage.RECHECK: steps.recheck,
    }  # fmt: skip
    wanted = {Stage.READY, *book.session.ladder.gates}
    for stage, gate in gates.items():
        doubtful = stage is Stage.RECHECK and book.failure is not None  # a load test that measured nothing
        if not (stage in wanted or doubtful):
            continue
        if _failed(book.add(_report(gate(book, return_state=True)))):
            return


def _planned(session: Session, capabilities: Capabilities, wanted: Try) -> LaunchPlan | Unspellable:
    port = {} if session.settings.api_port is None else {"port": session.settings.api_port}
    return build_plan(
        Wanted(wanted.rung, {**port, **wanted.args}, wanted.env), session.engine, capabilities,
        python=session.target.python, model=session.target.model,
    )  # fmt: skip


def _redactor(inputs: Inputs) -> Redactor:
    """Knows the secrets of our environment, of the target's and of the ladder's, and what the settings want hidden."""
    rungs = (rung.env for rung in inputs.ladder.rung.values())
    redactor = Redactor.of_env(
        os.environ, inputs.target.plain_env(), inputs.ladder.base.env, *rungs, patterns=inputs.settings.redact
    )
    if inputs.settings.redact_hosts:
        for name in {socket.gethostname(), *(() if inputs.target.is_local else (inputs.target.host,))}:
            redactor.hide(name)
    return redactor


def _failed(report: StageReport) -> bool:
    return report.outcome is not AttemptOutcome.PASSED


def _report(state: State[Any]) -> StageReport:
    found = _result(state)
    assert isinstance(found, StageReport)
    return found


def _result(state: State[Any]) -> Any:
    """What a step or an attempt gave back, whatever its state is called. Raises: the error that ended it."""
    found = state.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    return found


def _signal_behind(error: BaseException) -> BaseException | None:
    """The Ctrl-C or SIGTERM that an error came of: inside its own engine Prefect 3.9 raises a ValueError over it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt | SystemExit | TerminationSignal):
        seen = seen.__cause__ or seen.__context__
    return seen


def _prefect_listener() -> Any:
    """Milestones into the run's log and Prefect's events (contracts §8)."""
    logger, run = get_run_logger(), runtime.flow_run.get_id()

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        shown = {k: str(v) for k, v in facts.items()}
        logger.info("%s %s", event, " ".join(f"{k}={v}" for k, v in shown.items()))
        emit_event(f"bringup.{event}", resource={"prefect.resource.id": f"bringup.run.{run}"}, payload=shown)

    return hear
