"""`bringup report`: a run as one HTML page that opens from disk."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli_show import folder_of
from tasks.page import html_report
from tasks.store import read_record, replace

__all__ = ["report"]


def report(
    run: Annotated[str | None, typer.Argument(help="run id or folder; default: the newest run")] = None,
    runs: Annotated[str | None, typer.Option("--runs", help="folder of records; default $BRINGUP_HOME/runs")] = None,
    out: Annotated[Path | None, typer.Option(help="write the page here; default: beside the record")] = None,
) -> None:
    """Write a run's page anew from its record, and print where it lies. Example: bringup report"""
    folder = folder_of(run, runs)
    page = out or folder / "report.html"
    replace(page, html_report(read_record(folder)).encode("utf-8", "replace"))
    print(page)
