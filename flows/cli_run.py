"""`bringup run` and `bringup rehearse`: the flow in this process, with or without a Prefect server."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli_show import branch_table
from flows.listeners import LISTENERS, SHOW
from flows.live import Live
from settings.inputs import DEFAULT_LADDER, load_inputs
from settings.source import find
from settings.story import ladder_of, load_story
from settings.words import EXIT_OF, ExitCode
from tasks.store import read_record

__all__ = ["rehearse", "run"]

RunsDir = Annotated[str | None, typer.Option("--runs", help="folder for records; default $BRINGUP_HOME/runs or ./runs")]
AsJson = Annotated[bool, typer.Option("--json", help="print the record, and nothing else, on stdout")]


def run(
    target: Annotated[str, typer.Option(help="name in settings/targets/, or a path")],
    ladder: Annotated[str, typer.Option(help="name in settings/ladders/, or a path")] = DEFAULT_LADDER,
    runs: RunsDir = None,
    keep: Annotated[bool, typer.Option(help="leave the server running after it passed; end it with `stop`")] = False,
    lock: Annotated[str | None, typer.Option(help="a run.lock.toml: run exactly that, in place of a ladder")] = None,
    as_json: AsJson = False,
) -> None:
    """Walk the ladder on a host until a rung serves right tokens, and say why each other did not.

    Example: bringup run --target settings/targets/gpu8.toml --ladder glm5-sm120
    """
    _go(target, ladder, runs, keep, as_json, lock)


def rehearse(
    story: Annotated[str, typer.Option(help="name in settings/rehearsals/, or a path")] = "founding",
    runs: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a decision tree against a simulated host on this machine: no GPU, no SSH key, no server.

    Example: bringup rehearse --story oom-then-nan
    """
    told = load_story(story)
    os.environ["BRINGUP_TARGET__ENV__REHEARSAL_STORY"] = str(find("rehearsals", story).resolve())
    os.environ.setdefault("BRINGUP_RUN__POLL_S", "0.2")
    os.environ.setdefault("BRINGUP_RUN__QUIET_S", json.dumps(told.quiet_s))
    _go("rehearsal", ladder_of(story, told), runs, False, as_json)


def _go(
    target: str, ladder: str, runs: str | None, keep: bool, as_json: bool, lock: str | None = None
) -> None:
    load_inputs(target, ladder, lock)  # a slip is told before anything is started
    _quiet_prefect()
    from flows.bringup import RunEnd, bringup  # Prefect takes a second to import

    with Live(quiet=as_json) as live:
        LISTENERS.set((live.hear,))
        SHOW.set(live.show)
        state = bringup(target=target, ladder=ladder, runs=runs, keep=keep, lock=lock, return_state=True)
    end = state.result(raise_on_failure=False)
    if isinstance(end, BaseException):
        raise end
    assert isinstance(end, RunEnd)
    record = read_record(Path(end.folder))
    if as_json:
        print(record.model_dump_json())
    else:
        console = Console()
        console.print(branch_table(record))
        for what in ("record.json", "report.html"):
            console.print(f"{what:<12} {end.folder}/{what}", soft_wrap=True, highlight=False)
    sys.stdout.flush()
    raise typer.Exit(ExitCode.PREFLIGHT if end.halt.by == "preflight" else EXIT_OF[end.outcome])


def _quiet_prefect() -> None:
    """Our own display tells the run; Prefect's console lines would be a second telling. No telemetry."""
    for name, value in {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # 5 s when idle; the default of 20 fails under load
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }.items():
        os.environ.setdefault(name, value)
