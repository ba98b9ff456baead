"""`bringup show`, `bringup logs` and `bringup ladder`: what was left of a run, and what a ladder would do."""

import sys
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.lines import hanging, stdout_width
from flows.terminal import nobody_reads
from settings.inputs import load_ladder
from settings.source import BadInput, find
from tasks.chosen import LATEST, run_folder, run_to_show
from tasks.deadline import Deadline, pause
from tasks.pure.draw import draw, ladder_tree, run_tree
from tasks.pure.event_text import event_line
from tasks.pure.explain import explain as lines_of
from tasks.pure.record import RunRecord
from tasks.pure.report import branch_rows, headline
from tasks.pure.visible import visible
from tasks.store import read_record, runs_root

__all__ = ["branch_table", "explain", "folder_of", "harmless", "ladder", "logs", "show"]

ladder = typer.Typer(no_args_is_help=True, help="Check or draw a decision tree.")
RunName = Annotated[
    str | None,
    typer.Argument(help="run id or its beginning or end, folder, or 'latest'; default: the newest that tried anything"),
]
RunsDir = Annotated[str | None, typer.Option("--runs", help="folder of records; default $BRINGUP_HOME/runs or ./runs")]
_LONGEST_LINE = 1 << 20  # bytes of a line that are looked at together
_SILENT_S = 600.0  # a living run writes each stage; the longest silent wait is a load
_NARROW = {  # heading -> column of branch_rows
    "#": "attempt", "rung": "rung", "backend": "actual backend", "outcome": "outcome", "cause": "reason",
    "move": "move", "s": "seconds",
}  # fmt: skip


@ladder.command("check")
def check(file: Annotated[str, typer.Argument(help="name in settings/ladders/, or a path")]) -> None:
    """Say whether a ladder is sound; exit 2 with one sentence when it is not. Example: bringup ladder check my.toml"""
    tree = load_ladder(file)
    print(f"{find('ladders', file)}: sound, {len(tree.rung)} rungs, {len(tree.remedy)} remedies")


@ladder.command("show")
def show_ladder(file: Annotated[str, typer.Argument(help="name in settings/ladders/, or a path")]) -> None:
    """Draw a ladder. Example: bringup ladder show glm5-sm120"""
    tree = load_ladder(file)
    Console().print(draw(ladder_tree(tree, Path(file).stem, edges=True)))


def show(
    run: RunName = None, runs: RunsDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="the record on stdout")] = False,
) -> None:
    """Tell a run from its record: the branch taken and why. Example: bringup show"""
    folder = folder_of(run, runs)
    record = read_record(folder)
    if as_json:
        print(record.model_dump_json(ensure_ascii=True))
        return
    record = harmless(record)
    console = Console()
    console.print(Text(headline(record), "bold"))
    if record.halt:
        console.print(Text(f"ended by {record.halt.by}: {record.halt.reason}"))
    else:
        console.print(Text("no end is written: the run is still going on, or it was killed"))
    console.print(branch_table(record))
    if tree := run_tree(record):
        console.print(draw(tree))
    for what in ("record.json", "report.html"):
        console.print(f"{what:<12} {visible(str(folder / what))}", soft_wrap=True, highlight=False)


def explain(run: RunName = None, runs: RunsDir = None) -> None:
    """Say in ten lines why this branch was taken, each move with its evidence. Example: bringup explain"""
    width = stdout_width()
    for line in lines_of(harmless(read_record(folder_of(run, runs)))):
        for part in [line] if width is None else hanging("", line, width, under=3):
            print(part)


def logs(
    run: Annotated[str | None, typer.Argument(help="run id or its beginning or end; default: the newest run")] = None,
    runs: RunsDir = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until the run has ended")] = False,
    attempt: Annotated[int | None, typer.Option(help="this attempt's server log, not the events")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the events as stored: one JSON object a line")] = False,
) -> None:
    """Print a run's events, or a server's log. Example: bringup logs -f"""
    folder = folder_of(run or LATEST, runs)
    if run is None:
        print(f"bringup: this is {visible(folder.name)}", file=sys.stderr)
    path, shown = folder / "events.jsonl", visible if as_json else _event
    if attempt is not None:
        found = sorted((folder / "logs").glob(f"{attempt:02d}-*.log"))
        if not found:
            have = ", ".join(p.stem for p in sorted((folder / "logs").glob("*.log"))) or "none"
            raise BadInput(folder / "logs", str(attempt), f"no log of that attempt; there are: {have}")
        path, shown = found[0], visible
    at, grew_at = 0, time.monotonic()
    while True:
        record = read_record(folder)
        ended = record.halt is not None
        came = _print_from(path, at, shown, whole=follow and not ended)
        if came != at:
            at, grew_at = came, time.monotonic()
        if not follow or ended or nobody_reads():
            return
        if time.monotonic() - grew_at > max(record.lease_s, _SILENT_S):
            print(f"nothing for {time.monotonic() - grew_at:.0f} s and no end is written: killed?", file=sys.stderr)
            return
        pause(0.5, Deadline.after(0.5, time.monotonic))


def harmless(record: RunRecord) -> RunRecord:
    """The record with nothing in it that would act on the terminal on which it is shown."""
    return RunRecord.model_validate(_visible(record.model_dump(by_alias=True)))


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Enum) else visible(value)
    if isinstance(value, Mapping):
        return {_visible(k): _visible(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_visible, value))
    return value


def _event(line: str) -> str:
    """A line of events.jsonl for a person."""
    text = line.rstrip("\n")
    head, said = event_line(text)
    width = stdout_width()
    lines = [head + said] if width is None or not head else hanging(head, said, width)
    return visible("\n".join(lines)) + line[len(text) :]


def _print_from(path: Path, at: int, shown: Callable[[str], str], *, whole: bool) -> int:
    """Print a file from a byte on, and say up to which; `whole`: a line without end waits for its rest."""
    try:
        with path.open("rb") as f:
            f.seek(at)
            while line := f.readline(_LONGEST_LINE):
                if whole and not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                    break
                sys.stdout.buffer.write(shown(line.decode("utf-8", "replace")).encode("utf-8", "replace"))
                at += len(line)
    except BrokenPipeError:
        raise
    except OSError as e:
        raise BadInput(path, "", f"cannot be read: {e.strerror or e}") from e
    sys.stdout.flush()
    return at


def branch_table(record: RunRecord) -> Table:
    """The branch taken, in 80 columns; what was asked stands in the report."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in _NARROW:
        table.add_column(heading, overflow="fold")
    for row in branch_rows(record):
        colour = {"Passed": "green", "Skipped": "dim"}.get(row["outcome"], "red")
        cells = {h: row[c].partition(" in ")[0] if h == "cause" else row[c] for h, c in _NARROW.items()}
        table.add_row(*(Text(text, colour if h == "outcome" else "") for h, text in cells.items()))
    return table


def folder_of(run: str | None, runs: str | None) -> Path:
    """The folder of the run that a person means. Where nobody named one, stderr says which it is. Raises: BadInput."""
    root = runs_root(runs)
    if run is not None:
        return run_folder(root, run)
    shown = run_to_show(root)
    for sentence in (*shown.newer, f"this is {shown.folder.name}"):
        print(f"bringup: {visible(sentence)}", file=sys.stderr)
    return shown.folder
