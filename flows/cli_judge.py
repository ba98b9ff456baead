"""`bringup judge`: says of each reply in a file what it turned out to be."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from settings.source import BadInput
from settings.words import ExitCode, Verdict
from tasks.pure.judge import judge as verdict_on
from tasks.replies import read_replies

__all__ = ["judge"]

_COLOUR = {Verdict.OK: "green", Verdict.EMPTY: "yellow", Verdict.TRUNCATED: "yellow"}


def judge(
    replies: Annotated[Path, typer.Argument(help="JSONL file; a line holds id, api, status, request, reply.")],
    as_json: Annotated[bool, typer.Option("--json", help="One object a line: id, verdict, why.")] = False,
) -> None:
    """Judge replies of a served API: ok, nan, garbage, truncated, empty or error.

    Exit code 0 when the file was read, whatever the verdicts are; 2 when a line of it could not be.

    Example: bringup judge replies.jsonl --json
    """
    table = Table("id", "verdict", "why", box=None, pad_edge=False)
    bad = False
    for call in read_replies(replies):
        if isinstance(call, BadInput):
            bad = True
            print(f"bringup: {call}", file=sys.stderr)
            continue
        judged = verdict_on(call)
        if as_json:
            print(json.dumps({"id": call.id, "verdict": judged.verdict, "why": judged.why}))
        else:
            verdict = Text(judged.verdict, style=_COLOUR.get(judged.verdict, "red"))
            table.add_row(Text(call.id), verdict, Text(judged.why))
    if not as_json:
        Console().print(table)
    if bad:
        raise typer.Exit(ExitCode.BAD_INPUT)
