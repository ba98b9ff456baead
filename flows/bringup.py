"""The flow: what is asked for, by whom and of which build; the run itself is in flows/run.py."""

import os
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, runtime
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.states import Completed

from flows.artifacts import quietly, show_row
from flows.listeners import LISTENERS
from flows.run import Run, RunEnd
from settings.inputs import DEFAULT_LADDER, Inputs, load_inputs
from tasks.install import WantedBuild
from tasks.pure.fleet import row_of
from tasks.pure.record import Build, Halt, HostSummary, LadderRef, RunRecord, Source, SuiteRef
from tasks.pure.redact import Redactor
from tasks.pure.resume import reopened
from tasks.pure.tell import news
from tasks.repeat import recipe_of, records, resolve_and_compare
from tasks.resume import asked, check_same, run_of_flow, to_resume
from tasks.runlog import RunLog
from tasks.store import RunFolder, runs_root

__all__ = ["RunEnd", "bringup"]


def _run_name() -> str:
    """E.g. "gpu8-glm5-sm120", also where target and ladder are paths."""
    told = runtime.flow_run.get_parameters()
    return f"{Path(told['target']).stem}-{Path(told['ladder']).stem}"


@flow(name="glm5-bringup", flow_run_name=_run_name, retries=0, persist_result=False)
def bringup(
    target: str = "rehearsal", ladder: str = DEFAULT_LADDER, runs: str | None = None, keep: bool = False,
    lock: str | None = None, resume: str | None = None, again: bool = False, ref: str | None = None,
    force: bool = False,
) -> State[RunEnd]:  # fmt: skip
    """Bring a model up on a host: try the ladder's rungs until one serves right tokens, and say why.

    Args:
        target: name in settings/targets/, or a path: the host and its model
        ladder: name in settings/ladders/, or a path: the decision tree
        runs: folder for records and logs; default `$BRINGUP_HOME/runs` or `./runs`
        keep: leave the server running after it passed (end it with `bringup stop`)
        lock: path of a run.lock.toml: exactly that configuration is run, and no ladder
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
    inputs = load_inputs(target, ladder, lock)
    wanted, repeated = _wanted(inputs, ref, root)
    if repeated and not force:
        return _skipped(root, repeated)
    run_id = f"{now:%Y%m%d-%H%M%S}-{inputs.target.name}-{secrets.token_hex(2)}"
    record = RunRecord(
        run_id=run_id, started_at=now, target=inputs.target.name,
        ladder=LadderRef(name=inputs.ladder_name, sha256=inputs.ladder_sha256, text=inputs.ladder_text),
        build=Build(engine=inputs.engine.name), host=HostSummary(name=inputs.target.name),
        lease_s=inputs.target.lease_s, asked=asked(target, ladder, inputs, keep=keep, ref=ref, flow_run=flow_run),
        source=_source(wanted),
        suites={role: SuiteRef(name=name, sha256=sha256) for role, (name, sha256) in inputs.suites.items()},
    )  # fmt: skip
    return _sitting(Run(inputs, RunFolder(root, run_id, _redactor(inputs)), record, wanted=wanted))


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
    return _sitting(Run(inputs, at, record, before=before, again=again, wanted=wanted))


def _wanted(inputs: Inputs, ref: str | None, root: Path) -> tuple[WantedBuild | None, RunRecord | None]:
    """The build to install, and the run that this one would repeat."""
    if ref is None:
        return None, None
    return resolve_and_compare(inputs, recipe_of(inputs.target), ref, root)


def _source(wanted: WantedBuild | None) -> Source | None:
    return Source(ref=wanted.ref.text, commit=wanted.commit, folder=wanted.key) if wanted else None


def _skipped(root: Path, last: RunRecord) -> State[RunEnd]:
    what = last.source.commit or last.source.ref if last.source else ""
    note = f"skipped: {what} on the same host came to '{last.outcome}' in {last.run_id}, and nothing has changed"
    get_run_logger().info(note)
    quietly(lambda: show_row(row_of(last).model_copy(update={"state": "Skipped", "headline": note})))
    end = RunEnd(last.outcome, str(root / last.run_id), Halt(reason=note, by="user"))
    return Completed(name="Skipped", message=note, data=end)


def _sitting(run: Run) -> State[RunEnd]:
    """One stretch of a run, from its first line to its last."""
    folder = run.folder
    with folder.held():
        with RunLog(folder.events_path, run.record.run_id, folder.redactor, _prefect_listener(), *LISTENERS.get()):
            state = run.go()
            _tell(run.record, folder.path.parent)
            return state


def _tell(record: RunRecord, root: Path) -> None:
    """The event that automations wait for (deployments/automations.yaml)."""
    told = news(record, list(records(root)))
    if told is not None:
        get_run_logger().info(told.payload["text"])
        resource = {"prefect.resource.id": f"bringup.target.{record.target}", "prefect.resource.name": record.target}
        emit_event(f"bringup.{told.event}", resource=resource, payload=dict(told.payload))


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


def _prefect_listener() -> Any:
    """Milestones into the run's log and Prefect's events (contracts §8)."""
    logger, run = get_run_logger(), runtime.flow_run.get_id()

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        shown = {k: str(v) for k, v in facts.items()}
        logger.info("%s %s", event, " ".join(f"{k}={v}" for k, v in shown.items()))
        emit_event(f"bringup.{event}", resource={"prefect.resource.id": f"bringup.run.{run}"}, payload=shown)

    return hear
