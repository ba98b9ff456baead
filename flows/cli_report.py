"""`bringup report`: a run, or the history of all, as one HTML page that opens from disk."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_files import written
from flows.cli_history import Runs, roots_of
from flows.cli_show import folder_of
from settings.source import BadInput
from tasks.page import html_report
from tasks.records import read_records
from tasks.store import read_record, replace
from tasks.trend import html_history

__all__ = ["report"]


def report(
    run: Annotated[str | None, typer.Argument(help="run id or its beginning or end; default: as `show`")] = None,
    runs: Runs = None,
    out: Annotated[Path | None, typer.Option(help="write the page here; default: beside the record")] = None,
    all_: Annotated[bool, typer.Option("--history", help="the page of all runs, by target, and not of one")] = False,
) -> None:
    """Write a run's page anew from its record, and print where it lies. Example: bringup report"""
    if all_:
        roots = roots_of(runs)
        found = read_records(*roots)
        elsewhere = len(roots) > 1 or "://" in roots[0]
        page = out or Path("history.html" if elsewhere else f"{roots[0]}/history.html")
        with written(page, "--out"):
            nights = [run for run in found.runs if run.confirms is None]
            replace(page, html_history(nights, found.damaged).encode("utf-8", "replace"))
        print(page)
        return
    if runs and (len(runs) > 1 or "://" in runs[0]):
        raise BadInput("report", "--runs", "a run's own page is written from one folder here; --history reads several")
    folder = folder_of(run, runs[0] if runs else None)
    page = out or folder / "report.html"
    html = html_report(read_record(folder)).encode("utf-8", "replace")
    with written(page, "--out"):
        replace(page, html)
    print(page)
