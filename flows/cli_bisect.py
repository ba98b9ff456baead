"""`bringup bisect`: which commit it was, found by running those between the last good and the first bad one."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from flows.cli_run import AsJson, RunsDir, quiet_prefect, screen_of
from flows.listeners import LISTENERS, SHOW
from flows.live import Live
from settings.inputs import load_inputs
from settings.source import BadInput
from settings.target import load_target
from settings.words import ExitCode
from tasks.bisect import STATE, folder_name, run_of_commit, to_bisect
from tasks.pure.visible import visible
from tasks.resume import check_same
from tasks.store import runs_root

__all__ = ["bisect"]


def bisect(
    run: Annotated[str | None, typer.Argument(help="id of the run that regressed; A/B/A has said 'code'")] = None,
    target: Annotated[str | None, typer.Option(help="name in settings/targets/, or a path")] = None,
    good: Annotated[str | None, typer.Option(help="commit that served; A/B/A is then not asked")] = None,
    bad: Annotated[str | None, typer.Option(help="commit whose run regressed")] = None,
    most: Annotated[int | None, typer.Option("--launches", min=1, help="at most, now; default log2 and five")] = None,
    wall_s: Annotated[float | None, typer.Option(min=1, help="seconds, now; default the ladder's budget")] = None,
    runs: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Find the first bad commit. The same command goes on where it was cut. Example: bringup bisect RUN"""
    root, good_run = runs_root(runs), None
    if run is None:
        if target is None or good is None or bad is None:
            raise BadInput("bisect", "", "needs the RUN that regressed, or --target, --good and --bad")
        name = load_target(target).name
        good_run = run_of_commit(root, name, good, served=True).run_id
        run = run_of_commit(root, name, bad, served=False).run_id
    elif target or good or bad:
        raise BadInput("bisect", "RUN", "has its own target and commits; give either it, or --target, --good and --bad")
    worse, better = to_bisect(root, run, good_run)
    assert worse.asked is not None
    inputs = load_inputs(worse.asked.target, worse.asked.ladder)
    check_same(root / worse.run_id, worse, inputs)
    quiet_prefect()
    with Live(screen_of(inputs, root), quiet=as_json) as live:
        from flows.bisect import bisect as search
        from flows.own_server import start_own_server

        start_own_server()
        LISTENERS.set((live.hear,))
        SHOW.set(live.show)
        state = search(run=worse.run_id, good=good_run, runs=runs, most=most, wall_s=wall_s, return_state=True)
    if state.name in ("Failed", "Crashed"):
        error = state.result(raise_on_failure=False)
        assert isinstance(error, BaseException)
        raise error
    folder = root / folder_name(worse, better)
    if as_json:
        kept = json.loads((folder / STATE).read_text())
        print(json.dumps({"state": state.name, "said": state.message, "report": str(folder / "report.md"), **kept}))
    else:
        for line in (visible(state.message or ""), f"report.md    {folder / 'report.md'}"):
            Console().print(line, soft_wrap=True, highlight=False, markup=False)
    sys.stdout.flush()
    raise typer.Exit(ExitCode.SERVING if state.is_completed() else ExitCode.NOT_SERVING)
