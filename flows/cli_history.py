"""`bringup history` and `bringup compare`: runs beside each other, from the records that they left."""

import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from flows.cli_show import harmless
from settings.run import load_run_settings
from settings.source import BadInput
from tasks.chosen import named
from tasks.pure.build import DECIDED
from tasks.pure.history import compare as differences
from tasks.pure.history import history as rows_of
from tasks.pure.record import RunRecord
from tasks.pure.regression import compare_with_history, good_runs
from tasks.pure.report import comparison_lines
from tasks.pure.visible import visible
from tasks.records import Records, read_records, run_ids
from tasks.store import runs_root

__all__ = ["Runs", "compare", "history", "roots_of"]

Runs = Annotated[
    list[str] | None,
    typer.Option("--runs", help="folder or URL of records, may be given several times; default $BRINGUP_HOME/runs"),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line on stdout")]
_STYLES = {"worse": "red", "better": "green", "not judged": "dim"}
_COLUMNS = ("build", "state", "path", "tok/s")


def history(
    target: Annotated[str | None, typer.Option(help="only runs on this target")] = None,
    ladder: Annotated[str | None, typer.Option(help="only runs of this ladder")] = None,
    since: Annotated[datetime | None, typer.Option(help="only runs that began then (UTC) or later")] = None,
    runs: Runs = None,
    as_json: AsJson = False,
) -> None:
    """List the runs with the path that each took, oldest first. Example: bringup history --target gpu8"""
    found = read_records(*roots_of(runs))
    rows = rows_of(found.runs, target=target, ladder=ladder, since=since.replace(tzinfo=UTC) if since else None)
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        widest = max((len(row["run_id"]) for row in rows), default=0)
        run = Column("run", no_wrap=True, min_width=widest)  # whole, to be copied
        table = Table(run, *_COLUMNS, box=None, pad_edge=False, header_style="dim")
        for row in rows:
            table.add_row(*_cells(row))
        Console().print(table)
    _tell_damage(found)
    if not rows:
        print(f"bringup: no run in {', '.join(roots_of(runs))} fits", file=sys.stderr)


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="run id; alone: compared with the good runs before it")],
    new: Annotated[str | None, typer.Argument(metavar="[NEW]", help="run id")] = None,
    runs: Runs = None, as_json: AsJson = False,
) -> None:
    """Say what differs between two runs, or what of one run is worse or better than the good ones before it.

    Example: bringup compare OLD NEW; bringup compare RUN
    """
    roots = roots_of(runs)
    if new is None:
        _with_history(roots, old, as_json)
        return
    before, after = _run(roots, old), _run(roots, new)
    if as_json:
        for row in differences(before, after):
            print(json.dumps(row))
        return
    told = differences(harmless(before), harmless(after))
    table = Table("what", "old", "new", "change", box=None, pad_edge=False, header_style="dim")
    for row in told:
        change = "" if row["change"] is None else f"{row['change']:+.1%}"
        table.add_row(*(Text(text) for text in (row["what"], _shown(row["old"]), _shown(row["new"]), change)))
    Console().print(table)


def roots_of(runs: list[str] | None) -> list[str]:
    """Where records lie: all that `--runs` says, else the one place where runs are written."""
    return runs or [str(runs_root(None))]


def _with_history(roots: list[str], name: str, as_json: bool) -> None:
    """Compared anew: the record of a run has what was known when it ended."""
    run, bands = _run(roots, name), load_run_settings().bands
    if run.outcome not in DECIDED:
        raise BadInput(run.run_id, "", f"ended '{run.outcome}' and came to no decision that could be compared")
    good = good_runs(run, reversed(read_records(*roots).runs), bands.nights)
    found = compare_with_history(run, good, bands)
    if found is None:
        raise BadInput(run.run_id, "", f"no run on {run.target} with ladder {run.ladder.name} served before it")
    if as_json:
        print(found.model_dump_json(ensure_ascii=True))
        return
    for line in comparison_lines(harmless(run.model_copy(update={"compared": found}))):
        Console().print(Text(line, _STYLES.get(line.partition(":")[0], "")), soft_wrap=True)


def _run(roots: list[str], name: str) -> RunRecord:
    if "/" in name or name in (".", ".."):
        raise BadInput("compare", name, "is no run id; `--runs` says where the runs lie")
    where = ", ".join(roots)
    id = named(name, run_ids(*roots), where=where)
    found = read_records(*roots, only=[id])
    if not found.runs:
        raise BadInput(where, id, found.damaged[0])
    return found.runs[0]


def _cells(row: dict[str, Any]) -> tuple[Text, ...]:
    speed = row["output_tokens_per_s"]
    path = " → ".join(f"{a['rung']}: {a['state']}" for a in row["attempts"]) or "nothing was tried"
    build = row["version"] or "unknown"
    state = row["state"] + (f" ({row['role']})" if row["role"] else "")  # made for another run
    style = "green" if row["state"] == "Serving" else "red"
    cells = (row["run_id"], build, state, path, f"{speed:,.0f}" if speed else "")
    return tuple(Text(visible(cell), style if at == 2 else "") for at, cell in enumerate(cells))


def _shown(value: Any) -> str:
    """Figures with four digits at least: 0.95 and 0.88 are not the same."""
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    return "–" if value is None else str(value)


def _tell_damage(found: Records) -> None:
    for sentence in found.damaged:
        print(f"bringup: left out: {visible(sentence)}", file=sys.stderr)
