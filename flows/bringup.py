"""The flow: walk the ladder, one subflow an attempt, and leave a record whatever happens."""

import secrets
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

from flows.artifacts import show_attempt, show_branch
from flows.listeners import LISTENERS, SHOW
from settings.inputs import DEFAULT_LADDER, Inputs, load_inputs
from settings.source import BadInput
from settings.words import AttemptOutcome, RunOutcome, Stage
from tasks import steps
from tasks.attempt import Book, skipped
from tasks.deadline import Deadline
from tasks.faults import StageReport
from tasks.host import HostError, HostKeyRefused, HostLost, HostUnreachable
from tasks.install import Installed, NotInstalled, WantedBuild, mark_good
from tasks.opening import HostBusy, open_session, remember_build, seen_build
from tasks.pure.expect import cannot_serve
from tasks.pure.ladder_plan import check_args
from tasks.pure.names import RUN_STATES, state_name
from tasks.pure.plan import Unspellable, Wanted, build_plan
from tasks.pure.record import Attempt, Build, Halt, HostSummary, LadderRef, Move, RunRecord, Source
from tasks.pure.redact import Redactor
from tasks.pure.report import headline
from tasks.pure.resume import decisive, other_build, reopened, unseen_end
from tasks.pure.walker import End, Try, next_move
from tasks.repeat import recipe_of, resolve_and_compare
from tasks.resume import asked, check_same, run_of_flow, to_resume
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
    resume: str | None = None, again: bool = False, ref: str | None = None, force: bool = False,
) -> State[RunEnd]:  # fmt: skip
    """Bring a model up on a host: try the ladder's rungs until one serves right tokens, and say why.

    Args:
        target: name in settings/targets/, or a path: the host and its model
        ladder: name in settings/ladders/, or a path: the decision tree
        runs: folder for records and logs; default `$BRINGUP_HOME/runs` or `./runs`
        keep: leave the server running after it passed (end it with `bringup stop`)
        resume: id or folder of a run to go on with; target and ladder are then those that it began with. Prefect's
            "retry" of a flow run does the same.
        again: with `resume`: try once more what has failed before on the same build
        ref: branch, tag, commit, release or wheel: install it first, by the target's recipe, into an environment of its
            own. Where the last run had the same build on the same host, this one is skipped.
        force: run even then
    """
    root, now, flow_run = runs_root(runs), datetime.now(UTC), runtime.flow_run.get_id()
    if resume is None and runtime.flow_run.get_run_count() > 1:
        resume = run_of_flow(root, str(flow_run))
    if resume is not None:
        return _go_on(root, resume, keep, again, now)
    inputs = load_inputs(target, ladder)
    wanted, repeated = _wanted(inputs, ref, root)
    if repeated and not force:
        return _skipped(root, repeated)
    run_id = f"{now:%Y%m%d-%H%M%S}-{inputs.target.name}-{secrets.token_hex(2)}"
    record = RunRecord(
        run_id=run_id, started_at=now, target=inputs.target.name,
        ladder=LadderRef(name=inputs.ladder_name, sha256=inputs.ladder_sha256),
        build=Build(engine=inputs.engine.name), host=HostSummary(name=inputs.target.name),
        lease_s=inputs.target.lease_s, asked=asked(target, ladder, inputs, keep=keep, ref=ref, flow_run=flow_run),
        source=_source(wanted),
    )  # fmt: skip
    return _sitting(_Run(inputs, RunFolder(root, run_id, _redactor(inputs)), record, wanted=wanted))


def _go_on(root: Path, run: str, keep: bool, again: bool, now: datetime) -> State[RunEnd]:
    folder, before, words = to_resume(root, run)
    inputs = load_inputs(words.target, words.ladder)
    check_same(folder, before, inputs)
    record = reopened(before, now).model_copy(update={"asked": words.model_copy(update={"keep": keep or words.keep})})
    at = RunFolder(folder.parent, before.run_id, _redactor(inputs))
    wanted = None
    if before.source is not None:  # the build that it began with, wherever its branch is now
        same = before.source.commit or before.source.ref
        wanted, _ = _wanted(inputs, same, root)
    return _sitting(_Run(inputs, at, record, before=before, again=again, wanted=wanted))


def _wanted(inputs: Inputs, ref: str | None, root: Path) -> tuple[WantedBuild | None, RunRecord | None]:
    """The build to install, and the run that this one would repeat."""
    if ref is None:
        return None, None
    return resolve_and_compare(inputs, recipe_of(inputs.target), ref, root)


def _source(wanted: WantedBuild | None) -> Source | None:
    return Source(ref=wanted.ref.text, commit=wanted.commit, key=wanted.key) if wanted else None


def _skipped(root: Path, last: RunRecord) -> State[RunEnd]:
    what = last.source.commit or last.source.ref if last.source else ""
    note = f"skipped: {what} on the same host came to '{last.outcome}' in {last.run_id}, and nothing has changed"
    get_run_logger().info(note)
    end = RunEnd(last.outcome, str(root / last.run_id), Halt(reason=note, by="user"))
    return Completed(name="Skipped", message=note, data=end)


def _sitting(run: "_Run") -> State[RunEnd]:
    """One stretch of a run, from its first line to its last."""
    folder = run.folder
    with folder.held():
        with RunLog(folder.events_path, run.record.run_id, folder.redactor, _prefect_listener(), *LISTENERS.get()):
            return run.go()


def _redactor(inputs: Inputs) -> Redactor:
    return Redactor.of_env(inputs.target.plain_env())


class _Run:
    """One sitting of a run: its record, from the first line to the last.

    `before`: the record that it goes on from. Budget and wall time are counted anew in each sitting.
    """

    def __init__(
        self, inputs: Inputs, folder: RunFolder, record: RunRecord, *, before: RunRecord | None = None,
        again: bool = False, wanted: WantedBuild | None = None,
    ) -> None:  # fmt: skip
        self.inputs, self.folder, self.record, self.before = inputs, folder, record, before
        self.keep = record.asked is not None and record.asked.keep
        self.trail = list(record.attempts)
        self.counting: list[Attempt] = []  # of those before this sitting, what the next move rests on
        self.earlier, self.again, self.wanted = len(self.trail), again, wanted
        self.book: Book | None = None

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
        except BadInput as e:
            if self.before:  # it cannot go on here: what it was stays written
                self.folder.write_record(self.before)
            else:
                self._ended(End(RunOutcome.ERROR, Halt(reason=str(e), by="error")))
            raise
        except Exception as e:
            if (signal := _signal_behind(e)) is not None:
                self._ended(End(RunOutcome.CANCELLED, Halt(reason="cancelled or interrupted", by="user")))
                raise signal from e
            self._ended(End(RunOutcome.ERROR, Halt(reason=f"{type(e).__name__}: {e}", by="error")))
            raise
        except BaseException:
            self._ended(End(RunOutcome.CANCELLED, Halt(reason="cancelled or interrupted", by="user")))
            raise
        self._ended(end)
        show_branch(self.record)
        found = RunEnd(end.outcome, str(self.folder.path), end.halt)
        name = RUN_STATES.get(end.outcome, str(end.outcome).capitalize())
        make: Any = Completed if name == "Serving" else Failed
        return make(name=name, message=headline(self.record), data=found)  # type: ignore[no-any-return]

    def _host_taken(self) -> End:
        last = None if self.again else unseen_end(self.trail)
        with open_session(
            self.inputs, self.folder, self.record.run_id, show=SHOW.get(), earlier=last.id if last else None
        ) as session:
            as_it_is: Any = quote(session)  # Prefect would walk through it to look for futures
            if self.wanted is not None and (end := self._install(session, self.wanted)):
                return end
            session.capabilities = steps.probe(as_it_is, self.inputs.target.name)
            build = session.capabilities.build
            self._same_build(build)
            session.new_build = not seen_build(session, build)
            self.record = self.record.model_copy(
                update={"build": build, "host": session.capabilities.summary(self.inputs.target.name)}
            )
            self._store()
            log.info("host.probed", version=build.version, problems=list(session.capabilities.problems))
            check_args(session.ladder, session.engine, session.capabilities, file=self.inputs.ladder_file)
            refused = cannot_serve(session.engine, session.capabilities)
            if refused:
                return End(RunOutcome.STOPPED, Halt(reason=refused, by="preflight"))
            self.counting = [] if self.again else decisive(self.trail, serves=session.kept)
            return self._walk(session)

    def _install(self, session: Session, wanted: WantedBuild) -> End | None:
        """The build onto the host; the run's budget begins after it. The end of the run when it cannot be had."""
        quoted: Any = (quote(session), quote(wanted), quote(recipe_of(session.target)))
        done = _result(steps.install(*quoted, wanted.key, return_state=True))
        assert isinstance(done, Installed | NotInstalled)
        found = {"diagnosis": done.diagnosis} if isinstance(done, NotInstalled) else {"cached": done.cached}
        source = self.record.source.model_copy(update=found) if self.record.source else None
        self.record = self.record.model_copy(update={"source": source})
        self._store()
        if isinstance(done, NotInstalled):
            return End(RunOutcome.STOPPED, Halt(reason=done.diagnosis.means, by="preflight"))
        session.target = session.target.model_copy(update={"python": done.python})
        session.deadline = Deadline.after(session.ladder.budget.wall_s)
        return None

    def _same_build(self, build: Build) -> None:
        changed = other_build(self.before, build) if self.before else None
        if changed:
            raise BadInput(self.folder.path, "", changed)

    def _walk(self, session: Session) -> End:
        """The loop of the whole program: the trail decides the next try, the try extends the trail."""
        components = session.engine.components()
        while True:
            spent_s = session.ladder.budget.wall_s - session.deadline.left_s
            trail = [*self.counting, *self.trail[self.earlier :]]
            step = next_move(
                session.ladder, trail, spent_s=spent_s, components=components, before=len(self.counting)
            )
            if trail and step.move and trail[-1].move != step.move:
                self._leave(trail[-1], step.move)
            if isinstance(step.then, End):
                return step.then
            taken_up = self._take_up(session, step.then)
            entry = self._try(session, step.then, taken_up)
            self.trail.append(entry)
            self._store()
            if entry.outcome is AttemptOutcome.PASSED:
                remember_build(session, self.record.build)
                if self.wanted is not None:
                    mark_good(session.host, session.target, self.wanted, deadline=session.call())
            if entry.outcome is AttemptOutcome.ABORTED:
                return self._aborted(session, entry)

    def _leave(self, left: Attempt, move: Move) -> None:
        """Write the edge taken into the attempt that took it, which an aborted one may follow."""
        moved = left.model_copy(update={"move": move})
        for attempts in (self.trail, self.counting):
            attempts[:] = [moved if a.id == left.id else a for a in attempts]
        log.info("rung.left", rung=left.rung, **move.model_dump(include={"move", "to", "why"}))
        if move.move == "remedy":
            log.info("remedy.applied", remedy=move.to, set=move.set)
        self._store()

    def _take_up(self, session: Session, wanted: Try) -> Attempt | None:
        """The attempt before this sitting whose server we find, when it is the very one that is wanted now."""
        last = self.trail[-1] if self.trail else None
        if last is None or last.id != session.taken_up or last.outcome is not AttemptOutcome.ABORTED:
            return None
        session.taken_up = None
        if (last.rung, last.remedies) != (wanted.rung, wanted.remedies):
            session.supervisor.stop(last.id, deadline=Deadline.after(session.settings.stop_s))
            return None
        self.earlier -= 1
        return self.trail.pop()

    def _try(self, session: Session, wanted: Try, taken_up: Attempt | None) -> Attempt:
        n = len(self.trail) + 1
        assert session.capabilities is not None
        port = {} if session.settings.api_port is None else {"port": session.settings.api_port}
        plan = build_plan(
            Wanted(wanted.rung, {**port, **wanted.args}, wanted.env), session.engine, session.capabilities,
            python=session.target.python, model=session.target.model,
        )  # fmt: skip
        insist = wanted.insist or session.ladder.doomed == "try"
        if isinstance(plan, Unspellable) or (plan.doomed and not insist):
            entry = skipped(n, wanted, plan)
            log.info("rung.skipped", rung=wanted.rung, why=entry.diagnosis.means if entry.diagnosis else "")
            return entry
        again = taken_up.id if taken_up and taken_up.argv == plan.argv else None
        if taken_up and not again:
            session.supervisor.stop(taken_up.id, deadline=Deadline.after(session.settings.stop_s))
        self.book = Book(session, n, wanted, plan, id=again, changed=self._store)
        self._store()
        _result(attempt(self.book, n, wanted.rung, self.keep, return_state=True))
        entry, self.book = self.book.attempt(), None
        return entry

    def _aborted(self, session: Session, last: Attempt) -> End:
        """An attempt that we ended ourselves takes no edge."""
        why = last.diagnosis.means if last.diagnosis else ""
        if last.diagnosis and last.diagnosis.kind == "lease_expired":
            log.warning("lease.expired", why=why)
            return End(RunOutcome.HOST_LOST, Halt(reason=why, by="host"))
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

    def _store(self) -> None:
        under_way = (self.book.under_way(),) if self.book else ()
        record = self.record.model_copy(update={"attempts": (*self.trail, *under_way)})
        self.record = self.folder.redactor.model(record)
        self.folder.write_record(self.record)


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
    show_attempt(entry)
    name = state_name(entry.outcome, entry.diagnosis)
    make: Any = Completed if entry.outcome is AttemptOutcome.PASSED else Failed
    return make(name=name, message=reason)  # type: ignore[no-any-return]


def _run_gates(book: Book) -> None:
    """Preflight, launch, and the gates of the ladder in their order; the first that fails ends it."""
    # Of an attempt that is taken up the own server would stand in the way.
    if not book.taken_up and _failed(book.add(_report(steps.preflight(book, return_state=True)))):
        return
    book.session.running = book.id
    if _failed(book.add(_report(steps.launch(book, return_state=True)))):
        return
    gates: dict[Stage, Any] = {
        Stage.READY: steps.wait_ready, Stage.WARMUP: steps.warm_up, Stage.DECODE: steps.decode,
        Stage.BENCH: steps.bench, Stage.RECHECK: steps.recheck,
    }  # fmt: skip
    wanted = {Stage.READY, *book.session.ladder.gates}
    for stage, gate in gates.items():
        doubtful = stage is Stage.RECHECK and book.failure is not None  # a load test that measured nothing
        if not (stage in wanted or doubtful):
            continue
        if _failed(book.add(_report(gate(book, return_state=True)))):
            return


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
