"""`bringup run` and `bringup rehearse`: the flow in this process, with or without a Prefect server."""

import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from flows.cli_files import NO_ROOM, no_room
from flows.cli_host import what_is_left
from flows.cli_show import branch_table, harmless
from flows.listeners import LISTENERS, SHOW
from flows.live import Live
from flows.screen import Screen
from settings.inputs import DEFAULT_LADDER, Inputs, check_wait, load_inputs, narrowed
from settings.source import BadInput, find
from settings.story import ladder_of, load_story
from settings.target import Target
from tasks.pure.names import exit_code
from tasks.pure.pace import pace
from tasks.pure.record import RunRecord
from tasks.pure.report import comparison_lines
from tasks.pure.visible import visible
from tasks.repeat import recipe_of
from tasks.resume import anywhere, check_same, to_resume
from tasks.store import read_record, records, runs_root

__all__ = ["AsJson", "RunsDir", "quiet_prefect", "rehearse", "run", "screen_of"]

RunsDir = Annotated[str | None, typer.Option("--runs", help="folder for records; default $BRINGUP_HOME/runs or ./runs")]
_LOOKED_AT = 100  # earlier runs, for the usual times
AsJson = Annotated[bool, typer.Option("--json", help="print the record, and nothing else, on stdout")]


def run(
    target: Annotated[str | None, typer.Option(help="name in settings/targets/, or a path")] = None,
    ladder: Annotated[str | None, typer.Option(help="name in settings/ladders/, or a path")] = None,
    runs: RunsDir = None,
    keep: Annotated[bool, typer.Option(help="leave the server running after it passed; end it with `stop`")] = False,
    lock: Annotated[str | None, typer.Option(help="a run.lock.toml: run exactly that, in place of a ladder")] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="go on with this run: its id or folder")] = None,
    again: Annotated[bool, typer.Option(help="with --resume: try again what failed before on this build")] = False,
    ref: Annotated[str | None, typer.Option(help="install this branch, tag, commit, release or wheel first")] = None,
    force: Annotated[bool, typer.Option(help="with --ref: run although the last run had the same build")] = False,
    confirm: Annotated[
        bool, typer.Option(help="with --ref: a regression is confirmed by the last good build and this one, run again")
    ] = False,
    wait_s: Annotated[float, typer.Option(help="seconds to wait for a host that another run has; 0: no wait")] = 0.0,
    notify: Annotated[bool, typer.Option(help="emit the events that tell people")] = True,
    budget_s: Annotated[float | None, typer.Option(help="seconds for the run, if less than the ladder's")] = None,
    budget_attempts: Annotated[int | None, typer.Option(help="launches, if less than the ladder's")] = None,
    as_json: AsJson = False,
) -> None:
    """Walk the ladder on a host until a rung serves right tokens, and say why each other did not.

    Example: bringup run --target settings/targets/gpu8.toml --ladder glm5-sm120
    """
    budget = budget_attempts, budget_s
    if again and resume is None:
        raise BadInput("run", "--again", "goes with --resume RUN")
    if resume is not None:
        folder, _, words = to_resume(runs_root(runs), resume)
        for flag, given, begun_with in (("--target", target, words.target), ("--ladder", ladder, words.ladder)):
            if given is not None and anywhere(given) != begun_with:
                raise BadInput("run", flag, f"is {given}, but {folder.name} began with {begun_with}")
        _go(
            words.target, words.ladder, runs, keep, as_json, resume=str(folder), again=again, wait_s=wait_s,
            notify=notify, budget=budget,
        )  # fmt: skip
    if target is None:
        raise BadInput("run", "--target", "needs a host: a name in settings/targets/, or a path")
    if confirm and ref is None:
        raise BadInput("run", "--confirm", "goes with --ref: only a build that was installed can be had again")
    _go(
        target, ladder or DEFAULT_LADDER, runs, keep, as_json, ref=ref, force=force, lock=lock, confirm=confirm,
        wait_s=wait_s, notify=notify, budget=budget,
    )  # fmt: skip


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
    target: str, ladder: str, runs: str | None, keep: bool, as_json: bool, *, resume: str | None = None,
    again: bool = False, ref: str | None = None, force: bool = False, lock: str | None = None, confirm: bool = False,
    wait_s: float = 0.0, notify: bool = True, budget: tuple[int | None, float | None] = (None, None),
) -> NoReturn:  # fmt: skip
    check_wait(wait_s)
    inputs = narrowed(load_inputs(target, ladder, lock), *budget)  # a slip is told before anything is started
    if ref is not None:
        recipe_of(inputs.target)
    if resume is not None:
        check_same(Path(resume), read_record(Path(resume)), inputs)
    root = runs_root(runs)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(root, "", f"cannot hold runs: {e.strerror}") from e
    quiet_prefect()
    live = Live(screen_of(inputs, root, resume), quiet=as_json)
    note: str | None = None
    try:
        with live:
            from flows.bringup import bringup
            from flows.own_server import start_own_server

            start_own_server()
            LISTENERS.set((live.hear,))
            SHOW.set(live.show)
            state = bringup(
                target=target, ladder=ladder, runs=runs, keep=keep, lock=lock, resume=resume, again=again, ref=ref,
                force=force, confirm=confirm, wait_s=wait_s, notify=notify, budget_attempts=budget[0],
                budget_s=budget[1], return_state=True,
            )  # fmt: skip
    except KeyboardInterrupt:
        if live.folder and as_json:  # before the host is asked: whoever waits for it may not wait that long
            print(read_record(live.folder).model_dump_json(ensure_ascii=True), flush=True)
        print(f"bringup: stopping; {visible(_left(inputs.target, live.folder))}", file=sys.stderr)
        if live.folder:
            name = live.folder.name if runs is None else live.folder
            print(f"bringup: `bringup run --resume {name}` goes on with it", file=sys.stderr)
        raise
    except Exception as e:
        if live.folder is None or read_record(live.folder).halt is None:
            raise
        note, folder = f"the end is not on the run page: {type(e).__name__}: {e}", live.folder  # Prefect went away
    else:
        note = state.message if state.name == "Skipped" else note
        folder = _folder_of(state, live.folder, root)
    record = read_record(folder)
    if as_json:
        print(record.model_dump_json(ensure_ascii=True))
    else:
        _show(record, folder, note, began=live.folder is not None)
    sys.stdout.flush()
    raise typer.Exit(exit_code(record))


def _folder_of(state: Any, began: Path | None, root: Path) -> Path:
    """Of the run that the flow came to. Raises: the error that ended it."""
    end = state.result(raise_on_failure=False)
    if isinstance(end, OSError) and end.errno in NO_ROOM:
        raise no_room(end, began or root)
    if isinstance(end, BaseException) and (began is None or state.name in ("Failed", "Crashed")):
        raise end
    found = getattr(end, "folder", began)  # a RunEnd, of the run that this one would have repeated
    assert found is not None
    return Path(found)


def screen_of(inputs: Inputs, root: Path, resume: str | None = None) -> Screen:
    """What a terminal shows of a run on that target, with the times that are usual there."""
    before = islice(records(root), _LOOKED_AT)  # the newest first
    usual = pace(before, target=inputs.target.name, model=inputs.target.model)
    ladder = inputs.ladder
    screen = Screen(f"{inputs.ladder_name} on {inputs.target.name}", list(ladder.rung), ladder.gates, usual)
    if resume is not None:
        screen.earlier(read_record(Path(resume)).attempts)
    return screen


def _left(target: Target, folder: Path | None) -> str:
    """What an interrupted run left, in a word."""
    attempts = read_record(folder).attempts if folder else ()
    return what_is_left(target, folder.name if folder else "", attempts[-1].id if attempts else None)


def _show(record: RunRecord, folder: Path, note: str | None, *, began: bool) -> None:
    console = Console()
    if note:
        console.print(note, soft_wrap=True, highlight=False)
    console.print(branch_table(record))
    for line in comparison_lines(harmless(record)):
        if not line.startswith("not judged"):
            console.print(Text(line), soft_wrap=True)
    for what in ("record.json", "report.html"):
        console.print(f"{what:<12} {folder / what}", soft_wrap=True, highlight=False)
    won = next((a for a in record.attempts if a.n == record.winner), None)
    if began and won and record.asked and record.asked.keep:
        port = won.argv[won.argv.index("--port") + 1] if "--port" in won.argv else "?"
        console.print(
            f"kept         {won.rung} serves on port {port} of {record.target} (loopback there); "
            f"`bringup stop --target {record.asked.target}` ends it", soft_wrap=True, highlight=False,
        )  # fmt: skip


def quiet_prefect() -> None:
    """Our own display tells the run; Prefect's console lines would be a second telling. No telemetry."""
    for name, value in {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # 5 s when idle; the default of 20 fails under load
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }.items():
        os.environ.setdefault(name, value)
