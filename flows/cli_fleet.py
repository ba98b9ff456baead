"""`bringup fleet`: many hosts, one table."""

import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from flows.cli_run import quiet_prefect
from flows.listeners import LISTENERS
from settings.inputs import DEFAULT_LADDER, check_wait, load_ladder, smaller
from settings.source import BadInput
from settings.words import ExitCode
from tasks.fleet import target_files
from tasks.pure.fleet import FLEET_COLUMNS, FleetRow, fleet_headline, table_rows, worst
from tasks.pure.visible import visible

__all__ = ["fleet"]


def fleet(
    target: Annotated[list[str] | None, typer.Option(help="name in settings/targets/, or a path; may be given often")]
    = None,
    targets: Annotated[list[str] | None, typer.Option(metavar="FOLDER|GLOB", help="each .toml file there")] = None,
    ladder: Annotated[str, typer.Option(help="name in settings/ladders/, or a path")] = DEFAULT_LADDER,
    runs: Annotated[str | None, typer.Option("--runs", help="folder for records, where the runs run")] = None,
    at_once: Annotated[int, typer.Option(help="hosts that are worked on at the same time", min=1)] = 8,
    keep: Annotated[bool, typer.Option(help="leave each server running after it passed; end it with `stop`")] = False,
    ref: Annotated[str | None, typer.Option(help="install this branch, tag, commit, release or wheel first")] = None,
    force: Annotated[bool, typer.Option(help="with --ref: run although the last run had the same build")] = False,
    confirm: Annotated[
        bool, typer.Option(help="with --ref: a regression is confirmed by the last good build and this one, run again")
    ] = False,
    notify: Annotated[bool, typer.Option(help="emit the events that tell people of each host")] = True,
    budget_s: Annotated[float | None, typer.Option(help="seconds for each run, if less than the ladder's")] = None,
    budget_attempts: Annotated[int | None, typer.Option(help="launches of each run, if less than the ladder's")] = None,
    wait_s: Annotated[float, typer.Option(help="seconds to wait for a host that another run has; 0: no wait")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a host, a line each, on stdout")] = False,
) -> None:
    """Bring a model up on many hosts at once, a run each, and end in one table; the exit code is the worst of theirs.

    With PREFECT_API_URL and workers there the runs are theirs, else they are processes of this one.

    Example: bringup fleet --targets ./hosts --ladder glm5-sm120
    """
    words = target_files([*(target or ()), *(targets or ())])  # a slip is told before anything is started
    smaller(load_ladder(ladder).budget, budget_attempts, budget_s)
    check_wait(wait_s)
    if confirm and ref is None:
        raise BadInput("fleet", "--confirm", "goes with --ref: only a build that was installed can be had again")
    quiet_prefect()
    told = _Told(quiet=as_json)
    told.say("starting Prefect")  # with a server of its own it takes some seconds
    from flows.fleet import fleet as flow
    from flows.own_server import start_own_server

    start_own_server()  # the hosts' runs report to it yet when Ctrl-C has ended us
    LISTENERS.set((told.hear,))
    try:
        state = flow(
            targets=words, ladder=ladder, runs=runs, at_once=at_once, keep=keep, ref=ref, force=force,
            confirm=confirm, notify=notify, budget_s=budget_s, budget_attempts=budget_attempts, wait_s=wait_s,
            return_state=True,
        )  # fmt: skip
    finally:  # also of an interrupted fleet
        if as_json:
            for row in told.rows:
                print(row.model_dump_json(ensure_ascii=True))
        elif told.rows:
            _show(told.rows)
        sys.stdout.flush()
    end = state.result(raise_on_failure=False)
    if isinstance(end, BaseException) and (state.name in ("Failed", "Crashed") or not told.rows):
        raise end  # not a fleet that came to its end: an error of its own
    raise typer.Exit(worst(told.rows))


class _Told:
    """A line on stderr for each host that begins and ends; and the rows, once they are there."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._began = time.monotonic()
        self.rows: list[FleetRow] = []

    def say(self, line: str) -> None:
        at = Text(f"{time.monotonic() - self._began:7.1f}s  ", "dim")
        self._console.print(at + Text(visible(line)), soft_wrap=True)

    def hear(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "fleet.started":
            self.say(f"{facts['hosts']} hosts, at most {facts['at_once']} at once, {facts['by']}")
        elif event == "fleet.host":
            said = f"{facts['ended']:>4} of {facts['hosts']}  {facts['target']}: {facts['state']}"
            self.say(f"{said}: {facts['headline']}" if facts["headline"] else said)
        elif event == "fleet.ended":
            self.rows = list(facts["rows"])


def _show(rows: list[FleetRow]) -> None:
    """The table, each row's headline on a line of its own: beside the rest it has no room in 80 columns."""
    console = Console(highlight=False)
    cells = [{name: visible(text) for name, text in row.items()} for row in table_rows(rows)]
    columns = [name for name in FLEET_COLUMNS if name != "headline"]
    wide = {name: max(len(name), *(len(row[name]) for row in cells)) for name in columns}
    console.print("  ".join(name.ljust(wide[name]) for name in columns), style="dim", soft_wrap=True)
    for row, cell in zip(rows, cells, strict=True):
        colour = "green" if row.exit is ExitCode.SERVING else "red"
        line = Text("  ").join(
            Text(cell[name].ljust(wide[name]), colour if name == "state" else "") for name in columns
        )
        console.print(line, soft_wrap=True)
        console.print(Text(f"    {cell['headline']}", "dim"), soft_wrap=True)
    console.print(visible(fleet_headline(rows)), soft_wrap=True)
