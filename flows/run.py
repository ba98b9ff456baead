"""One sitting of a run: the loop over the ladder, and the record that it leaves whatever happens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.utilities.annotations import quote

from flows.artifacts import Bars, quietly, show_branch, show_row, show_winner
from flows.attempt import attempt, carry_out, result_of, signal_behind
from flows.listeners import SHOW
from settings.inputs import Inputs
from settings.source import BadInput
from settings.words import AttemptOutcome, RunOutcome
from tasks import steps
from tasks.attempt import Book, skipped
from tasks.deadline import Deadline
from tasks.host import HostError, HostKeyRefused, HostLost, HostUnreachable
from tasks.install import Installed, NotInstalled, WantedBuild, mark_good
from tasks.opening import open_session, remember_build, seen_build
from tasks.publish import publish
from tasks.pure.build import DECIDED
from tasks.pure.capabilities import Capabilities
from tasks.pure.comparison import Confirmation
from tasks.pure.expect import cannot_serve, not_there
from tasks.pure.fleet import row_of
from tasks.pure.ladder_plan import check_args
from tasks.pure.lock import differences, lock_of, lock_toml, replay
from tasks.pure.names import run_state
from tasks.pure.plan import LaunchPlan, Unspellable, Wanted, build_plan
from tasks.pure.record import Attempt, Build, Halt, Move, RunRecord
from tasks.pure.regression import compare_with_history, good_runs
from tasks.pure.report import headline
from tasks.pure.resume import decisive, other_build, unseen_end
from tasks.pure.tuning import again, incumbent, next_step
from tasks.pure.walker import End, Try
from tasks.repeat import recipe_of
from tasks.runlog import log
from tasks.session import Session
from tasks.store import RunFolder, records
from tasks.turn import HostBusy

__all__ = ["Run", "RunEnd"]


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What the state of a run that serves carries; the record has it for every run."""

    outcome: RunOutcome
    folder: str
    halt: Halt


class Run:
    """One sitting of a run: its record, from the first line to the last.

    `before`: the record that it goes on from. Budget and wall time are counted anew in each sitting.
    `nights`: the good runs to compare with, the newest first; None: those before it.
    `wait_s`: how long a busy host is waited for.
    """

    def __init__(
        self, inputs: Inputs, folder: RunFolder, record: RunRecord, *, before: RunRecord | None = None,
        again: bool = False, wanted: WantedBuild | None = None, nights: Sequence[RunRecord] | None = None,
        unreached: HostError | None = None, wait_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.inputs, self.folder, self.record, self.before = inputs, folder, record, before
        self.nights, self.unreached, self.wait_s = nights, unreached, wait_s
        self.keep = record.asked is not None and record.asked.keep
        self.trail = list(record.attempts)
        self.counting: list[Attempt] = []  # of those before this sitting, what the next move rests on
        self.earlier, self.again, self.wanted = len(self.trail), again, wanted
        self.book: Book | None = None
        self.session: Session | None = None

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
            tried = self.book is not None or bool(self.trail[self.earlier :])
            if self.before and not tried:  # it cannot go on here: what it was stays written
                self.folder.write_record(self.before)
            else:
                self._ended(End(RunOutcome.ERROR, Halt(reason=str(e), by="error" if tried else "preflight")))
            raise
        except Exception as e:
            if (signal := signal_behind(e)) is not None:
                self._ended(End(RunOutcome.CANCELLED, Halt(reason="cancelled or interrupted", by="user")))
                raise signal from e
            self._ended(End(RunOutcome.ERROR, Halt(reason=f"{type(e).__name__}: {e}", by="error")))
            raise
        except BaseException:
            self._ended(End(RunOutcome.CANCELLED, Halt(reason="cancelled or interrupted", by="user")))
            raise
        self._ended(end)
        self._tell()
        name = run_state(end.outcome)
        if name != "Serving":  # no value: under a worker Prefect turns a failed state into an exception, its text
            return Failed(name=name, message=headline(self.record))
        return Completed(
            name=name, message=headline(self.record), data=RunEnd(end.outcome, str(self.folder.path), end.halt)
        )

    def _host_taken(self) -> End:
        if self.unreached is not None:
            raise self.unreached
        last = None if self.again else unseen_end(self.trail)
        named = self.record.asked.target if self.record.asked else self.inputs.target.name
        with open_session(
            self.inputs, self.folder, self.record.run_id, named=named, show=Bars(SHOW.get()),
            wait_s=self.wait_s, earlier=last.id if last else None,
        ) as session:  # fmt: skip
            self.session = session
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
            self._compare_with_lock(build)
            self._store()
            log.info("host.probed", version=build.version, problems=list(session.capabilities.problems))
            check_args(session.ladder, session.engine, session.capabilities, file=self.inputs.ladder_file)
            refused = cannot_serve(session.engine, session.capabilities) or not_there(
                session.engine, session.capabilities, python=session.target.python, on=session.target.name
            )
            if refused:
                return End(RunOutcome.STOPPED, Halt(reason=refused, by="preflight"))
            self.counting = [] if self.again else decisive(self.trail, serves=session.kept)
            return self._walk(session)

    def _compare_with_lock(self, build: Build) -> None:
        """What of build and host differs from the lock that is run; the host's own name goes, if it is to be hidden."""
        if self.inputs.settings.redact_hosts and self.record.host.hostname:
            self.folder.redactor.hide(self.record.host.hostname)
        if self.inputs.lock:
            given = self.inputs.target.plain_env()
            differs = differences(self.inputs.lock, build, self.record.host, given, self.record.suites)
            self.record = self.record.model_copy(update={"differs": differs})
            log.info("lock.compared", differs=list(differs))

    def _install(self, session: Session, wanted: WantedBuild) -> End | None:
        """The build onto the host; the run's budget begins after it. The end of the run when it cannot be had."""
        quoted: Any = (quote(session), quote(wanted), quote(recipe_of(session.target)))
        done = result_of(steps.install(*quoted, wanted.key, return_state=True))
        assert isinstance(done, Installed | NotInstalled)
        found: dict[str, Any]
        if isinstance(done, NotInstalled):
            found = {"diagnosis": done.diagnosis}
        else:
            found = {"cached": done.cached, "freeze": done.freeze}
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
            step = next_step(
                session.ladder, trail, spent_s=spent_s, components=components, before=len(self.counting)
            )
            if trail and step.move and trail[-1].move != step.move:
                self._leave(trail[-1], step.move)
            if isinstance(step.then, End):
                return self._kept(session, step.then)
            best = incumbent(session.ladder, trail) if step.then.variation else None
            session.rival = best.load if best else None
            taken_up = self._take_up(session, step.then)
            entry = self._try(session, step.then, taken_up, keep=self.keep and not session.ladder.vary)
            self.trail.append(entry)
            self._store()
            if entry.outcome is AttemptOutcome.PASSED and self.record.role != "bisect":  # that ends at some gate
                remember_build(session, self.record.build)
                if self.wanted is not None:
                    self._mark_good(session, self.wanted)
            if entry.outcome is AttemptOutcome.ABORTED:
                return self._aborted(session, entry)

    def _mark_good(self, session: Session, wanted: WantedBuild) -> None:
        """So that the build is not collected. It has passed by now: no error of the note takes that away."""
        try:
            mark_good(session.host, session.target, wanted, deadline=session.call())
        except HostError as e:
            log.warning("build.not_marked", why=str(e))

    def _kept(self, session: Session, end: End) -> End:
        """After variations the winner's server is gone: one that is to stay is launched anew."""
        best = again(session.ladder, self.trail) if self.keep and session.ladder.vary and end.winner else None
        if best is None:
            return end
        session.rival = None
        last = self._try(session, best, None, keep=True)
        self.trail.append(last)
        self._store()
        if last.outcome is AttemptOutcome.PASSED:
            return End(end.outcome, end.halt, winner=last.n)
        if last.outcome is AttemptOutcome.ABORTED:
            return self._aborted(session, last)
        return End(RunOutcome.STOPPED, Halt(reason=f"{end.halt.reason}, and it did not pass again", by="rung"))

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

    def _try(self, session: Session, wanted: Try, taken_up: Attempt | None, *, keep: bool) -> Attempt:
        n = len(self.trail) + 1
        assert session.capabilities is not None
        plan = replay(self.inputs.lock) if self.inputs.lock else _planned(session, session.capabilities, wanted)
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
        try:
            result_of(attempt(self.book, n, wanted.rung, keep, return_state=True))
        except Exception as e:
            self._untold(self.book, e, keep)
        entry, self.book = self.book.attempt(), None
        return entry

    def _untold(self, book: Book, error: Exception, keep: bool) -> None:
        """An error of the attempt goes on. One of Prefect, whose server is away for minutes, costs only its page."""
        if book.error is not None:
            raise book.error
        if signal_behind(error) is not None or (book.begun and not book.done):
            raise error
        log.warning("attempt.not_told", why=f"{type(error).__name__}: {error}")
        if not book.begun:
            carry_out(book, keep)

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
            if not self.book.done:
                self.book.abort("interrupted", why)
            self.trail.append(self.book.attempt())
            self.book = None

    def _ended(self, end: End) -> None:
        """Write the end down. No network here: on a signal there are seconds, and the first error stays the first."""
        self._close_book(end.halt.reason)
        if end.winner is None and (left := self._still_there()):
            end = replace(end, halt=end.halt.model_copy(update={"reason": f"{end.halt.reason}; {left}"}))
        self.record = self.record.model_copy(
            update={"outcome": end.outcome, "halt": end.halt, "winner": end.winner, "ended_at": datetime.now(UTC)}
        )
        self._store()
        log.info("record.written", path=self.folder.record_path, report=self.folder.report_path)
        log.info(
            "run.ended", outcome=end.outcome, headline=headline(self.record), reason=end.halt.reason, by=end.halt.by
        )
        quietly(self._compare)  # what came out stands, whatever it is compared with
        quietly(lambda: self.folder.write_page(self.record))  # a second or two, on every way out

    def _still_there(self) -> str | None:
        """What a run that names no winner leaves without a lease."""
        session = self.session
        if session is None or not (session.kept or session.may_be_kept):
            return None
        return f"its server {'was' if session.kept else 'may have been'} kept: `bringup stop` ends it"

    def _store(self) -> None:
        under_way = (self.book.under_way(),) if self.book else ()
        record = self.record.model_copy(update={"attempts": (*self.trail, *under_way)})
        self.record = self.folder.write_record(record)

    def _compare(self) -> None:
        """What differs from the good runs before, into the record of a run that came to a decision."""
        if self.record.outcome not in DECIDED:
            return
        bands = self.inputs.settings.bands
        if self.nights is None:
            self.nights = good_runs(self.record, records(self.folder.path.parent), bands.nights)
        found = compare_with_history(self.record, self.nights, bands)
        if found is not None:
            self.record = self.record.model_copy(update={"compared": found})
            self._store()

    def confirm(self, found: Confirmation) -> None:
        """What further runs say of this one, into the record of a run that has ended."""
        with self.folder.held():
            self.record = self.record.model_copy(update={"confirmed": found})
            self._store()

    def show(self) -> None:
        """Page, lock and artifacts, anew."""
        quietly(lambda: self.folder.write_page(self.record))
        self._tell()

    def _tell(self) -> None:
        """Lock and artifacts. Record and page are written by now."""
        if self.record.winner:
            quietly(lambda: self.folder.write_lock(lock_toml(lock_of(self.record))))
        quietly(lambda: show_row(row_of(self.record)))
        quietly(lambda: show_branch(self.record))
        quietly(lambda: show_winner(self.record, self.folder.path))
        if self.inputs.settings.publish:
            self._publish(self.inputs.settings.publish)

    def _publish(self, url: str) -> None:
        """To the shared place. The run is what it was, whatever becomes of its copy."""
        try:
            files = publish(self.folder.path, url, deadline=Deadline.after(self.inputs.settings.publish_s))
        except Exception as e:
            log.warning("run.not_published", to=url, why=f"{type(e).__name__}: {e}")
        else:
            log.info("run.published", to=url, files=files)


def _planned(session: Session, capabilities: Capabilities, wanted: Try) -> LaunchPlan | Unspellable:
    chosen = session.target.api_port or session.settings.api_port
    port = {} if chosen is None else {"port": chosen}
    return build_plan(
        Wanted(wanted.rung, {**port, **wanted.args}, wanted.env), session.engine, capabilities,
        python=session.target.python, model=session.target.model,
    )  # fmt: skip
