"""Every Prefect task, by name: a step is retried where its orchestration failed (the host was away) and only there."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed, Failed
from prefect.tasks import Task

from settings.words import AttemptOutcome
from tasks import stages
from tasks.faults import StageReport
from tasks.host import HostLost, HostUnreachable
from tasks.probe import probe as probe_host
from tasks.pure.capabilities import Capabilities
from tasks.pure.names import state_name
from tasks.pure.plan import LaunchPlan
from tasks.runlog import log
from tasks.session import Server, Session

__all__ = ["bench", "decode", "launch", "preflight", "probe", "recheck", "stop", "wait_ready", "warm_up"]


def _host_was_away(step: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether to run the step again. Safe: each step is idempotent (launch adopts the server of its attempt)."""
    error = state.result(raise_on_failure=False)
    away = isinstance(error, HostLost | HostUnreachable)
    if away:
        log.warning("step.retried", step=step.name, tried=run.run_count, why=str(error))
    return away


def _as_state(report: StageReport) -> State[StageReport]:
    """The report as a state that can be read off the run page."""
    if report.diagnosis is None:
        return Completed(name="Passed", message=report.result.reason or "passed", data=report)
    failed = report.outcome if report.outcome is not AttemptOutcome.PASSED else AttemptOutcome.FAILED
    return Failed(name=state_name(failed, report.diagnosis), message=report.result.reason, data=report)


_STEP: dict[str, Any] = {
    "cache_policy": NO_CACHE,  # a live session has no hash
    "persist_result": False,
    "retries": 2,
    "retry_delay_seconds": [2, 10],
    "retry_condition_fn": _host_was_away,
}


@task(name="probe", task_run_name="probe {session.target.name}", **_STEP)
def probe(session: Session) -> Capabilities:
    return probe_host(session.host, session.target, session.engine, deadline=session.probe_deadline())


@task(name="preflight", task_run_name="{rung}: preflight", **_STEP)
def preflight(session: Session, n: int, rung: str, plan: LaunchPlan) -> State[StageReport]:
    return _as_state(stages.preflight(session, n, rung, plan))


@task(name="launch", task_run_name="{rung}: launch", **_STEP)
def launch(session: Session, n: int, rung: str, attempt_id: str, plan: LaunchPlan) -> State[StageReport]:
    return _as_state(stages.launch(session, n, rung, attempt_id, plan))


@task(name="ready", task_run_name="{server.rung}: ready", **_STEP)
def wait_ready(session: Session, server: Server) -> State[StageReport]:
    return _as_state(stages.wait_ready(session, server))


@task(name="warmup", task_run_name="{server.rung}: warmup", **_STEP)
def warm_up(session: Session, server: Server) -> State[StageReport]:
    return _as_state(stages.warm_up(session, server))


@task(name="decode", task_run_name="{server.rung}: decode", **_STEP)
def decode(session: Session, server: Server) -> State[StageReport]:
    return _as_state(stages.decode(session, server))


@task(name="bench", task_run_name="{server.rung}: bench", **_STEP)
def bench(session: Session, server: Server) -> State[StageReport]:
    return _as_state(stages.bench(session, server))


@task(name="recheck", task_run_name="{server.rung}: recheck", **_STEP)
def recheck(session: Session, server: Server) -> State[StageReport]:
    return _as_state(stages.recheck(session, server))


@task(name="stop", task_run_name="{server.rung}: stop", **_STEP)
def stop(session: Session, server: Server) -> State[StageReport]:
    return _as_state(stages.stop(session, server))
