"""The flow: what is asked for, by whom and of which build; a sitting of it is in flows/sitting.py."""

from datetime import UTC, datetime
from pathlib import Path

from prefect import flow, get_run_logger, runtime
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.states import Completed

from flows.artifacts import quietly, show_row
from flows.confirm import confirm as confirm_regression
from flows.run import Run, RunEnd
from flows.sitting import new_run, redactor_of, sitting, source_of
from flows.terminal import outlive_readers
from settings.inputs import DEFAULT_LADDER, Inputs, check_wait, load_inputs, narrowed
from tasks.host import HostError
from tasks.install import WantedBuild, same_build
from tasks.pure.fleet import row_of
from tasks.pure.record import Halt, RunRecord
from tasks.pure.resume import reopened
from tasks.pure.tell import news
from tasks.repeat import recipe_of, resolve_and_compare
from tasks.resume import asked, check_same, run_of_flow, to_resume
from tasks.store import RunFolder, records, runs_root

__all__ = ["RunEnd", "bringup"]


def _run_name() -> str:
    """E.g. "gpu8-glm5-sm120", also where target and ladder are paths."""
    told = runtime.flow_run.get_parameters()
    return f"{Path(told['target']).stem}-{Path(told['ladder']).stem}"


@flow(name="glm5-bringup", flow_run_name=_run_name, retries=0, persist_result=False)
def bringup(
    target: str = "rehearsal", ladder: str = DEFAULT_LADDER, ref: str | None = None, force: bool = False,
    confirm: bool = False, keep: bool = False, notify: bool = True, budget_s: float | None = None,
    budget_attempts: int | None = None, runs: str | None = None, lock: str | None = None, resume: str | None = None,
    again: bool = False, wait_s: float = 0.0,
) -> State[RunEnd]:  # fmt: skip
    """Bring a model up on a host: try the ladder's rungs until one serves right tokens, and say why.

    Args:
        target: the host and its model: a name in settings/targets/, or a path
        ladder: the decision tree: a name in settings/ladders/, or a path
        ref: branch, tag, commit, release or wheel: install it first, by the target's recipe, into an environment of its
            own. Where the last run had the same build on the same host, this one is skipped.
        force: with `ref`: run even where nothing has changed since the last run
        confirm: with `ref`: before a regression is told, run the last good build and then this one once more, to tell
            code from host from noise
        keep: leave the server running after it passed (end it with `bringup stop`)
        notify: emit the events that tell people (`bringup.serving`, `regressed`, `recovered`, `exhausted`)
        budget_s: seconds for the whole run, where that is less than the ladder allows
        budget_attempts: launches, where that is less than the ladder allows
        runs: folder for records and logs; default `$BRINGUP_HOME/runs` or `./runs`
        lock: path of a run.lock.toml: exactly that configuration is run, and no ladder
        resume: id or folder of a run to go on with; target and ladder are then those that it began with. Prefect's
            "retry" of a flow run does the same.
        again: with `resume`: try once more what has failed before on the same build
        wait_s: seconds for which a host that another run has is waited for; 0 ends the run "Host busy" at once
    """
    outlive_readers()
    check_wait(wait_s)
    root, flow_run = runs_root(runs), runtime.flow_run.get_id()
    if resume is None and runtime.flow_run.get_run_count() > 1:
        resume = run_of_flow(root, str(flow_run))
    if resume is not None:
        return _told(_going_on(root, resume, keep, again, (budget_attempts, budget_s), wait_s), notify)
    inputs = narrowed(load_inputs(target, ladder, lock), budget_attempts, budget_s)
    words = asked(target, ladder, inputs, keep=keep, ref=ref, flow_run=flow_run, confirm=confirm)
    try:
        wanted, repeated = _wanted(inputs, ref, root)
    except HostError as e:  # a night that could not begin has a record as well
        return _told(new_run(root, inputs, words, None, unreached=e), notify)
    if repeated and not (force or keep):  # a server is wanted, not only an answer
        return _skipped(root, repeated)
    return _told(new_run(root, inputs, words, wanted, wait_s=wait_s), notify)


def _going_on(
    root: Path, run: str, keep: bool, again: bool, budget: tuple[int | None, float | None], wait_s: float
) -> Run:
    folder, before, words = to_resume(root, run)
    inputs = narrowed(load_inputs(words.target, words.ladder), *budget)
    check_same(folder, before, inputs)
    asked_now = words.model_copy(update={"keep": keep or words.keep})
    record = reopened(before, datetime.now(UTC)).model_copy(update={"asked": asked_now})
    at = RunFolder(folder.parent, before.run_id, redactor_of(inputs))
    wanted = same_build(before.source, recipe_of(inputs.target)) if before.source else None
    if before.source is None and words.ref is not None:  # the host was away when it was to be resolved
        wanted, _ = _wanted(inputs, words.ref, root)
        record = record.model_copy(update={"source": source_of(wanted)})
    return Run(inputs, at, record, before=before, again=again, wanted=wanted, wait_s=wait_s)


def _wanted(inputs: Inputs, ref: str | None, root: Path) -> tuple[WantedBuild | None, RunRecord | None]:
    """The build to install, and the run that this one would repeat."""
    if ref is None:
        return None, None
    return resolve_and_compare(inputs, recipe_of(inputs.target), ref, root)


def _skipped(root: Path, last: RunRecord) -> State[RunEnd]:
    what = last.source.commit or last.source.ref if last.source else ""
    note = f"skipped: {what} on the same host came to '{last.outcome}' in {last.run_id}, and nothing has changed"
    get_run_logger().info(note)
    quietly(lambda: show_row(row_of(last).model_copy(update={"state": "Skipped", "headline": note})))
    end = RunEnd(last.outcome, str(root / last.run_id), Halt(reason=note, by="user"))
    return Completed(name="Skipped", message=note, data=end)


def _told(run: Run, notify: bool) -> State[RunEnd]:
    """A sitting, and then the event that automations wait for (deployments/automations.yaml)."""
    state = sitting(run)
    try:
        _confirmed_and_told(run, notify)
    except Exception as e:  # the run has ended as it has, whatever becomes of what was to follow
        get_run_logger().warning("not confirmed or not told: %s: %s", type(e).__name__, e)
    return state


def _confirmed_and_told(run: Run, notify: bool) -> None:
    earlier = list(records(run.folder.path.parent))
    told = news(run.record, earlier)
    try:
        if told and told.event == "regressed" and run.record.asked and run.record.asked.confirm:
            confirm_regression(run, earlier)
    finally:  # a regression is told also where its confirmation was cut
        _tell(run.record, earlier, notify)


def _tell(record: RunRecord, earlier: list[RunRecord], notify: bool) -> None:
    told = news(record, earlier)
    if told is not None:
        get_run_logger().info(told.payload["text"])
    if told is not None and notify:
        resource = {
            "prefect.resource.id": f"bringup.target.{record.target}", "prefect.resource.name": record.target,
            "bringup.verdict": told.payload["verdict"] or "none",
        }  # fmt: skip
        emit_event(f"bringup.{told.event}", resource=resource, payload=dict(told.payload))
