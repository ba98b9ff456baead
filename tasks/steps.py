"""Every Prefect task, by name: a step is retried where its orchestration failed (the host was away) and only there."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed, Failed
from prefect.tasks import Task

from settings.recipe import Recipe
from settings.words import AttemptOutcome
from tasks import load, stages
from tasks.accuracy import accuracy as measure_accuracy
from tasks.attempt import Book
from tasks.deadline import Deadline
from tasks.faults import StageReport
from tasks.host import HostLost, HostUnreachable
from tasks.install import Installed, NotInstalled, WantedBuild
from tasks.install import install as put_there
from tasks.probe import probe as probe_host
from tasks.pure.capabilities import Capabilities
from tasks.pure.names import state_name
from tasks.runlog import log
from tasks.session import Session

__all__ = [
    "accuracy", "bench", "decode", "install", "keep", "launch", "preflight", "probe", "recheck", "stop", "wait_ready",
    "warm_up",
]  # fmt: skip


def _host_was_away(step: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether to run the step again. Safe: each step is idempotent (launch adopts the server of its attempt)."""
    error = state.result(raise_on_failure=False)
    away = isinstance(error, HostLost | HostUnreachable)
    if away and run.run_count <= _RETRIES:
        log.warning("step.retried", step=step.name, tried=run.run_count, why=str(error))
    return away


def _as_state(book: Book, report: StageReport) -> State[StageReport]:
    """The report as a state that can be read off the run page."""
    said = book.session.folder.redactor.text(report.result.reason)
    if report.diagnosis is None:
        return Completed(name="Passed", message=said or "passed", data=report)
    failed = report.outcome if report.outcome is not AttemptOutcome.PASSED else AttemptOutcome.FAILED
    return Failed(name=state_name(failed, report.diagnosis), message=said, data=report)


_RETRIES = 2
_STEP: dict[str, Any] = {
    "cache_policy": NO_CACHE,  # a live session has no hash
    "persist_result": False,
    "retries": _RETRIES,
    "retry_delay_seconds": [2, 10],
    "retry_condition_fn": _host_was_away,
}


@task(name="probe", task_run_name="probe {name}", **_STEP)
def probe(session: Session, name: str) -> Capabilities:  # noqa: ARG001 - the name is for the run page
    return probe_host(session.host, session.target, session.engine, deadline=session.probe_deadline())


# The steps of an attempt take its book, a plain object: Prefect walks through dataclasses and models to look for
# futures, and a session holds the whole catalogue.


@task(name="install", task_run_name="install {name}", **_STEP)
def install(session: Session, wanted: WantedBuild, recipe: Recipe, name: str) -> State[Installed | NotInstalled]:  # noqa: ARG001
    done = put_there(
        session.host, session.target, recipe, wanted, deadline=Deadline.after(sum(s.limit_s for s in recipe.step)),
        keep_log=session.folder.append_install_log,
    )  # fmt: skip
    if isinstance(done, NotInstalled):
        return Failed(name="Not installed", message=done.diagnosis.means, data=done)
    return Completed(name="Cached" if done.cached else "Installed", message=done.python, data=done)


@task(name="preflight", task_run_name="{book.rung}: preflight", **_STEP)
def preflight(book: Book) -> State[StageReport]:
    return _as_state(book, stages.preflight(book.session, book.n, book.rung, book.plan))


@task(name="launch", task_run_name="{book.rung}: launch", **_STEP)
def launch(book: Book) -> State[StageReport]:
    return _as_state(book, stages.launch(book.session, book.n, book.rung, book.id, book.plan))


@task(name="ready", task_run_name="{book.rung}: ready", **_STEP)
def wait_ready(book: Book) -> State[StageReport]:
    return _as_state(book, stages.wait_ready(book.session, book.launched))


@task(name="warmup", task_run_name="{book.rung}: warmup", **_STEP)
def warm_up(book: Book) -> State[StageReport]:
    return _as_state(book, stages.warm_up(book.session, book.launched))


@task(name="decode", task_run_name="{book.rung}: decode", **_STEP)
def decode(book: Book) -> State[StageReport]:
    return _as_state(book, stages.decode(book.session, book.launched))


@task(name="accuracy", task_run_name="{book.rung}: accuracy", **_STEP)
def accuracy(book: Book) -> State[StageReport]:
    return _as_state(book, measure_accuracy(book.session, book.launched))


@task(name="bench", task_run_name="{book.rung}: bench", **_STEP)
def bench(book: Book) -> State[StageReport]:
    return _as_state(book, load.bench(book.session, book.launched))


@task(name="recheck", task_run_name="{book.rung}: recheck", **_STEP)
def recheck(book: Book) -> State[StageReport]:
    return _as_state(book, stages.recheck(book.session, book.launched))


@task(name="stop", task_run_name="{book.rung}: stop", **_STEP)
def stop(book: Book) -> State[StageReport]:
    return _as_state(book, stages.stop(book.session, book.launched))


@task(name="keep", task_run_name="{book.rung}: keep", **_STEP)
def keep(book: Book) -> bool:
    return stages.keep(book.session)
