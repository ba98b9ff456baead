"""The flow of many hosts: one run of `glm5-bringup` a host, waited for, and one table at the end."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, runtime
from prefect.client.base import ServerType
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.artifacts import FleetBar, quietly, show_fleet
from flows.attempt import signal_behind
from flows.crew import Crew, Processes, Workers, workers_online
from flows.listeners import LISTENERS
from flows.muster import Muster
from flows.terminal import outlive_readers
from settings.inputs import DEFAULT_LADDER, check_wait, load_ladder, smaller
from settings.recipe import load_recipe
from settings.source import BadInput
from settings.target import load_target
from settings.words import ExitCode
from tasks.fleet import sorted_out, target_files
from tasks.pure.fleet import fleet_headline, worst
from tasks.resume import anywhere
from tasks.runlog import Listener

__all__ = ["fleet"]

_BESIDE_S = 3600.0  # what a run may take beside its ladder's budget and an install


@flow(name="glm5-fleet", retries=0, persist_result=False)
def fleet(
    targets: list[str], ladder: str = DEFAULT_LADDER, runs: str | None = None, at_once: int = 8, keep: bool = False,
    ref: str | None = None, force: bool = False, confirm: bool = False, notify: bool = True,
    budget_s: float | None = None, budget_attempts: int | None = None, wait_s: float = 0.0,
) -> State[None]:  # fmt: skip
    """Bring a model up on many hosts: a run of its own for each, and one table in the end.

    Args:
        targets: names in settings/targets/, paths, folders (each .toml in them) or patterns like `hosts/*.toml`
        ladder: name in settings/ladders/, or a path: the decision tree
        runs: folder for records and logs on the worker's machine; default `$BRINGUP_HOME/runs` or `./runs`
        at_once: how many hosts are worked on at the same time
        keep: leave each server running after it passed (end it with `bringup stop`)
        ref: branch, tag, commit, release or wheel: install it on each host first, by its target's recipe
        force: with `ref`: run a host even where its last run had the same build
        confirm: with `ref`: before a regression is told, run the last good build and then this one once more, to tell
            code from host from noise
        notify: emit the events that tell people of each host (`bringup.serving`, `regressed`, `recovered`, `exhausted`)
        budget_s: seconds for each host's run, where that is less than the ladder allows
        budget_attempts: launches on each host, where that is less than the ladder allows
        wait_s: seconds for which a host that another run has is waited for; 0 ends its run "Host busy" at once
    """
    outlive_readers()
    if at_once < 1:
        raise BadInput("fleet", "at_once", f"is {at_once}: no host would ever begin")
    check_wait(wait_s)
    budget = smaller(load_ladder(ladder).budget, budget_attempts, budget_s)  # a slip in these is not each host's
    confirm = confirm and ref is not None
    patience_s = (2 if confirm else 1) * budget.wall_s + wait_s + _BESIDE_S
    hosts, refused = sorted_out(target_files(targets), ladder)
    patience_s += max(map(_install_s, hosts.values()), default=0.0) if ref else 0.0
    asked = {
        "ladder": anywhere(ladder), "runs": runs, "keep": keep, "ref": ref, "force": force, "confirm": confirm,
        "notify": notify, "budget_s": budget_s, "budget_attempts": budget_attempts, "wait_s": wait_s,
    }  # fmt: skip
    with get_client(sync_client=True) as client, tempfile.TemporaryDirectory() as folder:
        muster = Muster(
            hosts, refused, _crew(client, Path(folder)), asked, hear=_listener(), at_once=at_once,
            patience_s=patience_s,
        )  # fmt: skip
        try:
            muster.wait()
        except BaseException as e:
            muster.dismiss(e if isinstance(e, Exception) and signal_behind(e) is None else None)
            raise
        finally:
            rows = muster.rows
            quietly(lambda: show_fleet(rows))
            for listener in LISTENERS.get():
                quietly(partial(listener, "fleet.ended", {"rows": rows}))
    text = fleet_headline(rows)
    if worst(rows) is ExitCode.SERVING:
        return Completed(name="Serving", message=text)
    return Failed(name=text.partition(";")[0], message=text)  # the rows stand in the table


def _install_s(target: str) -> float:
    """What the steps of that target's recipe may take; a target without one ends its own run at once."""
    recipe = load_target(target).recipe
    return sum(step.limit_s for step in load_recipe(recipe).step) if recipe else 0.0


def _crew(client: SyncPrefectClient, folder: Path) -> Crew:
    own = client.server_type is ServerType.EPHEMERAL  # no worker ever asks there
    online = 0 if own else workers_online(client)
    if online:
        return Workers(client, f"{runtime.flow_run.get_id()}-{runtime.flow_run.get_run_count()}", online)
    return Processes(str(client.api_url), folder)


def _listener() -> Listener:
    """Into the run's log, onto its progress bar, and to who else hears."""
    logger, bar = get_run_logger(), FleetBar()

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        logger.info("%s %s", event, " ".join(f"{key}={value}" for key, value in facts.items()))
        if event == "fleet.host":
            quietly(lambda: bar.show(facts["ended"], facts["hosts"]))
        for listener in LISTENERS.get():
            quietly(partial(listener, event, facts))

    return hear
