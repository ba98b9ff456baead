"""One sitting of a run with all who hear of it: its log, Prefect's log and events, the live display."""

import os
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from prefect import flow, get_run_logger, runtime
from prefect.client.schemas.objects import State
from prefect.events import emit_event

from flows.attempt import signal_behind
from flows.listeners import LISTENERS
from flows.run import Run, RunEnd
from settings.inputs import Inputs
from tasks.host import HostError
from tasks.install import WantedBuild, same_build
from tasks.pure.record import Asked, Build, HostSummary, LadderRef, RunRecord, Source, SuiteRef
from tasks.pure.redact import Redactor
from tasks.repeat import recipe_of
from tasks.runlog import RunLog
from tasks.store import RunFolder

__all__ = ["further_run", "new_run", "redactor_of", "sitting", "source_of"]


def new_run(
    root: Path, inputs: Inputs, asked: Asked, wanted: WantedBuild | None, *, nights: list[RunRecord] | None = None,
    confirms: str | None = None, role: Literal["A", "B", "bisect"] | None = None, unreached: HostError | None = None,
    wait_s: float = 0.0,
) -> Run:  # fmt: skip
    """A run that has not begun, in a folder of its own. `unreached`: why it will not, for its record."""
    now = datetime.now(UTC)
    run_id = f"{now:%Y%m%d-%H%M%S}-{inputs.target.name}-{secrets.token_hex(2)}"
    record = RunRecord(
        run_id=run_id, started_at=now, target=inputs.target.name,
        ladder=LadderRef(name=inputs.ladder_name, sha256=inputs.ladder_sha256, text=inputs.ladder_text),
        build=Build(engine=inputs.engine.name), host=HostSummary(name=inputs.target.name),
        lease_s=inputs.target.lease_s, asked=asked, confirms=confirms, role=role,
        source=source_of(wanted),
        suites={kind: SuiteRef(name=name, sha256=sha256) for kind, (name, sha256) in inputs.suites.items()},
    )  # fmt: skip
    folder = RunFolder(root, run_id, redactor_of(inputs))
    return Run(inputs, folder, record, wanted=wanted, nights=nights, unreached=unreached, wait_s=wait_s)


def source_of(wanted: WantedBuild | None) -> Source | None:
    """What a record says of a build before it is installed."""
    return Source(ref=wanted.ref.text, commit=wanted.commit, folder=wanted.key) if wanted else None


def further_run(
    of: RunRecord, inputs: Inputs, root: Path, source: Source, role: Literal["A", "B", "bisect"],
    nights: list[RunRecord] | None = None,
) -> RunRecord:  # fmt: skip
    """The record of one more run of the flow, made for the run `of` with the build of `source`.

    It has a folder of its own. A failure of ours in it is its outcome; only a signal ends the caller, too.
    """
    assert of.asked is not None, "it came from a run that was asked for"
    asked = of.asked.model_copy(
        update={"ref": source.commit or source.ref, "keep": False, "confirm": False, "flow_run": None}
    )
    wanted = same_build(source, recipe_of(inputs.target))
    run = new_run(root, inputs, asked, wanted, nights=nights, confirms=of.run_id, role=role)
    try:
        _further(run, role, (source.commit or source.ref)[:12], return_state=True)
    except Exception as e:
        if (signal := signal_behind(e)) is not None:
            raise signal from e
        get_run_logger().warning("%s of %s ended by %s: %s", role, of.run_id, type(e).__name__, e)
    return run.record


@flow(name="further run", flow_run_name="{role}-{build}", retries=0, validate_parameters=False, persist_result=False)
def _further(run: Run, role: str, build: str) -> State[RunEnd]:  # noqa: ARG001 - the names are for the run page
    return sitting(run)


def sitting(run: Run) -> State[RunEnd]:
    """One stretch of a run, from its first line to its last."""
    folder = run.folder
    with folder.held():
        with RunLog(folder.events_path, run.record.run_id, folder.redactor, _prefect_listener(), *LISTENERS.get()):
            return run.go()


def redactor_of(inputs: Inputs) -> Redactor:
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
