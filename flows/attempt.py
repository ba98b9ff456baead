"""The subflow of one attempt, and how a step's or an attempt's state is read."""

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed

from flows.artifacts import name_attempt, quietly, show_attempt
from settings.words import AttemptOutcome, Stage
from tasks import steps
from tasks.attempt import Book
from tasks.faults import StageReport
from tasks.pure.names import state_name
from tasks.pure.record import Attempt
from tasks.runlog import log

__all__ = ["attempt", "carry_out", "result_of", "signal_behind"]


@flow(name="attempt", flow_run_name="{n}-{rung}", retries=0, validate_parameters=False, persist_result=False)
def attempt(book: Book, n: int, rung: str, keep: bool) -> State[None]:  # noqa: ARG001 - the name is for the run page
    """One launch, its gates, and its end. The book holds what was found; the state's name is the reason."""
    entry = carry_out(book, keep)
    quietly(lambda: show_attempt(entry))
    quietly(lambda: name_attempt(entry))
    make: Any = Completed if entry.outcome is AttemptOutcome.PASSED else Failed
    return make(name=state_name(entry.outcome, entry.diagnosis), message=_reason(entry))  # type: ignore[no-any-return]


def carry_out(book: Book, keep: bool) -> Attempt:
    """The attempt itself. In the book stand how far it came, and the error that ended it, whatever Prefect hears."""
    session, book.begun = book.session, True
    log.info("attempt.started", n=book.n, rung=book.rung, remedies=list(book.wanted.remedies))
    try:
        _run_gates(book)  # on an error or a signal the session says the last word to the host (tasks/opening.py)
        if book.outcome is AttemptOutcome.PASSED and keep:
            if not result_of(steps.keep(book, return_state=True)):
                book.abort("lease_expired", "it passed, and could not be kept: the host is not ours any more")
        elif book.server:
            _passed(book, Stage.STOP, steps.stop)
            session.running = None
            session.kept = False  # a server that an earlier sitting kept is gone: the lock goes with the run
    except Exception as e:
        book.error = e
        raise
    book.done = True
    entry = session.folder.redactor.model(book.attempt())
    told = {"outcome": entry.outcome, "state": state_name(entry.outcome, entry.diagnosis), "stage": entry.failed_stage}
    log.info("attempt.ended", n=book.n, rung=book.rung, **told, reason=_reason(entry))
    if entry.diagnosis:
        found = entry.diagnosis
        log.info("diagnosis.made", **found.model_dump(include={"kind", "component", "phase", "means"}))
    return entry


def _reason(entry: Attempt) -> str:
    return entry.diagnosis.means if entry.diagnosis else "every gate passed"


def _run_gates(book: Book) -> None:
    """Preflight, launch, and the gates of the ladder in their order; the first that fails ends it."""
    # Of an attempt that is taken up the own server would stand in the way.
    if not book.taken_up and not _passed(book, Stage.PREFLIGHT, steps.preflight):
        return
    book.session.running = book.id
    if not _passed(book, Stage.LAUNCH, steps.launch):
        return
    gates: dict[Stage, Any] = {
        Stage.READY: steps.wait_ready, Stage.WARMUP: steps.warm_up, Stage.DECODE: steps.decode,
        Stage.ACCURACY: steps.accuracy, Stage.BENCH: steps.bench, Stage.RECHECK: steps.recheck,
    }  # fmt: skip
    wanted = {Stage.READY, *book.session.ladder.gates}
    for stage, gate in gates.items():
        doubtful = stage is Stage.RECHECK and book.failure is not None  # a load test that measured nothing
        if (stage in wanted or doubtful) and not _passed(book, stage, gate):
            return


def _passed(book: Book, stage: Stage, step: Any) -> bool:
    """One step, with its report in the book."""
    book.enter(stage)
    report = result_of(step(book, return_state=True))
    assert isinstance(report, StageReport)
    return book.add(report).outcome is AttemptOutcome.PASSED


def result_of(state: State[Any]) -> Any:
    """What a step or an attempt gave back, whatever its state is called. Raises: the error that ended it."""
    found = state.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    return found


def signal_behind(error: BaseException) -> BaseException | None:
    """The Ctrl-C or SIGTERM that an error came of: inside its own engine Prefect 3.9 raises a ValueError over it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt | SystemExit | TerminationSignal):
        seen = seen.__cause__ or seen.__context__
    return seen
