"""Who runs the hosts of a fleet: Prefect's workers where there are some, else processes of ours."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import FlowRun, StateType, WorkerStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelling
from pydantic import ValidationError

from flows.artifacts import ROW_KEY
from settings.words import ExitCode
from tasks.deadline import Deadline, pause
from tasks.pure.fleet import FleetRow, row_of
from tasks.pure.record import RunRecord

__all__ = ["DEPLOYMENT", "Crew", "Processes", "Workers", "options", "workers_online"]

DEPLOYMENT = "glm5-bringup/glm5-bringup"
_PAGE = 200  # the server gives no more runs at once
_LEAVE_S = 20.0  # a cancelled fleet has 30 s from Prefect


class Crew(Protocol):
    """Starts a run a host and says what became of it. A run is known by the words that `start` gave."""

    said: str

    def start(self, parameters: Mapping[str, Any]) -> str | FleetRow:
        """Begin a run of the flow `glm5-bringup`. Its row where that can never be."""

    def look(self, runs: Mapping[str, str]) -> dict[str, FleetRow | str]:
        """By host: its row when its run (`runs[host]`) has ended, else the state that it is in."""

    def cancel(self, runs: Collection[str]) -> None:
        """End these runs."""


def workers_online(client: SyncPrefectClient) -> int:
    """How many workers wait for runs of the deployment; 0 where it was never deployed."""
    try:
        pool = client.read_deployment_by_name(DEPLOYMENT).work_pool_name
    except ObjectNotFound:
        return 0
    found = client.read_workers_for_work_pool(pool) if pool else []
    return sum(worker.status is WorkerStatus.ONLINE for worker in found)


class Workers:
    """A run of the deployment a host; what a crash of one takes with it is that one."""

    def __init__(self, client: SyncPrefectClient, fleet_run: str, online: int) -> None:
        self._client, self._fleet_run = client, fleet_run
        self.said = f"by {online} worker{'s' if online > 1 else ''}"

    def start(self, parameters: Mapping[str, Any]) -> str | FleetRow:
        once = f"{self._fleet_run}-{parameters['target']}"  # so that a request sent twice is one run
        asked = dict(parameters)
        try:
            made = run_deployment(DEPLOYMENT, parameters=asked, timeout=0, idempotency_key=once, tags=["fleet"])
        except ObjectNotFound:  # since the fleet began; the runs that have begun go on
            why = f"the server has no deployment {DEPLOYMENT} any more"
            return FleetRow(target="", state="Not begun", exit=ExitCode.UNEXPECTED, headline=why)
        assert isinstance(made, FlowRun)
        return str(made.id)

    def look(self, runs: Mapping[str, str]) -> dict[str, FleetRow | str]:
        ids = [UUID(run) for run in runs.values()]
        found: dict[str, FlowRun] = {}
        for at in range(0, len(ids), _PAGE):
            these = FlowRunFilter(id=FlowRunFilterId(any_=ids[at : at + _PAGE]))
            found |= {str(run.id): run for run in self._client.read_flow_runs(flow_run_filter=these, limit=_PAGE)}
        seen: dict[str, FleetRow | str] = {}
        for name, id_ in runs.items():
            run = found.get(id_)
            if run is None:
                seen[name] = FleetRow(
                    target=name, state="Deleted", exit=ExitCode.UNEXPECTED, headline="the flow run was deleted"
                )
            elif run.state and run.state.is_final():
                seen[name] = self._row(name, run)
            else:
                seen[name] = run.state.name or "" if run.state else ""
        return seen

    def _row(self, name: str, run: FlowRun) -> FleetRow:
        """The row that the run itself drew, wherever it ran; what its state says where it could not."""
        drawn = self._client.read_artifacts(
            artifact_filter=ArtifactFilter(
                key=ArtifactFilterKey(any_=[ROW_KEY]), flow_run_id=ArtifactFilterFlowRunId(any_=[run.id])
            )
        )
        for artifact in sorted(drawn, key=lambda a: str(a.created))[-1:]:  # a run gone on with draws one a sitting
            with suppress(ValueError):  # a worker of another release: the state says what it can
                (row,) = json.loads(str(artifact.data))
                return FleetRow.model_validate(row).model_copy(update={"target": name})
        state = run.state
        assert state is not None
        by_type = {StateType.COMPLETED: ExitCode.SERVING, StateType.CANCELLED: ExitCode.INTERRUPTED}
        return FleetRow(
            target=name, state=state.name or state.type.value.capitalize(),
            exit=by_type.get(state.type, ExitCode.UNEXPECTED), headline=_first_line(state.message),
            seconds=run.total_run_time.total_seconds(),
        )  # fmt: skip

    def cancel(self, runs: Collection[str]) -> None:
        for run in runs:
            with suppress(httpx.HTTPError, PrefectException):  # one that cannot be told: the others can
                self._client.set_flow_run_state(UUID(run), Cancelling(message="cancelled with its fleet"))


class Processes:
    """`bringup run` a host, as a child process in a session of its own: Ctrl-C reaches us alone, and we pass it on."""

    def __init__(self, api: str, folder: Path) -> None:
        self._env = {**os.environ, "PREFECT_API_URL": api}
        self._folder, self._children = folder, dict[str, subprocess.Popen[bytes]]()
        self._began = dict[str, datetime]()
        self.said = "in processes of this one, since no worker of the deployment is online"

    def start(self, parameters: Mapping[str, Any]) -> str:
        words = ["run", "--json", *options(parameters)]
        run = str(len(self._children))
        self._began[run] = datetime.now(UTC)
        with (self._folder / f"{run}.out").open("wb") as out, (self._folder / f"{run}.err").open("wb") as err:
            self._children[run] = subprocess.Popen(
                [sys.executable, "-P", "-c", "from flows.cli import main; main()", *words],
                env=self._env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        return run

    def look(self, runs: Mapping[str, str]) -> dict[str, FleetRow | str]:
        return {
            name: "Running" if self._children[run].poll() is None else self._row(name, run)
            for name, run in runs.items()
        }

    def _row(self, name: str, run: str) -> FleetRow:
        try:
            record = RunRecord.model_validate_json((self._folder / f"{run}.out").read_bytes())
        except ValidationError:  # no run began, or it was killed: its last words are all that there is
            code = self._children[run].returncode
            words = (self._folder / f"{run}.err").read_text(errors="replace").strip().rpartition("\n")[2]
            exit_ = ExitCode(code) if code in set(ExitCode) else ExitCode.UNEXPECTED
            return FleetRow(
                target=name, state=_NAMES.get(exit_, "Crashed"), headline=words or f"ended with {code}", exit=exit_
            )
        row = row_of(record).model_copy(update={"target": name})
        if record.started_at < self._began[run]:  # the run that this one would have repeated
            note = f"skipped: nothing has changed since {record.run_id}, which came to '{row.state}'"
            return row.model_copy(update={"state": "Skipped", "headline": note})
        return row

    def cancel(self, runs: Collection[str]) -> None:
        alive = [child for run in runs if (child := self._children[run]).poll() is None]
        for child in alive:
            child.send_signal(signal.SIGTERM)
        deadline = Deadline.after(_LEAVE_S)
        while not deadline.passed and any(child.poll() is None for child in alive):
            pause(0.2, deadline)
        for child in alive:
            if child.poll() is None:
                child.kill()  # its lease ends what it has on the host


def options(parameters: Mapping[str, Any]) -> list[str]:
    """Parameters of the flow as options of `bringup run`, which has one for each that a fleet passes on."""
    words: list[str] = []
    for key, value in parameters.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words.append(f"--{name}={value}")
    return words


_NAMES = {
    ExitCode.BAD_INPUT: "Bad input", ExitCode.HOST_UNREACHABLE: "Host lost", ExitCode.INTERRUPTED: "Cancelled",
}  # fmt: skip


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
