"""`bringup report`: a run, or the history of all, as one HTML page that opens from disk."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_files import written
from flows.cli_show import folder_of
from tasks.page import html_report
from tasks.records import read_records
from tasks.store import read_record, replace, runs_root
from tasks.trend import html_history

__all__ = ["report"]


def report(
    run: Annotated[str | None, typer.Argument(help="run id or folder; default: the newest run")] = None,
    runs: Annotated[str | None, typer.Option("--runs", help="folder of records; default $BRINGUP_HOME/runs")] = None,
    out: Annotated[Path | None, typer.Option(help="write the page here; default: beside the record")] = None,
    all_: Annotated[bool, typer.Option("--history", help="the page of all runs, by target, and not of one")] = False,
) -> None:
    """Write a run's page anew from its record, and print where it lies. Example: bringup report"""
    if all_:
        root = runs or str(runs_root(None))
        found = read_records(root)
        page = out or Path("history.html" if "://" in root else f"{root}/history.html")
        with written(page, "--out"):
            replace(page, html_history(found.runs, found.damaged).encode("utf-8", "replace"))
        print(page)
        return
    folder = folder_of(run, runs)
    page = out or folder / "report.html"
    html = html_report(read_record(folder)).encode("utf-8", "replace")
    with written(page, "--out"):
        replace(page, html)
    print(page)
