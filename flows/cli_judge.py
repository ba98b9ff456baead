"""`bringup judge`: says of each reply in a file what it turned out to be."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from settings.run import load_run_settings
from settings.source import BadInput
from settings.words import ExitCode, Verdict
from tasks.pure.judge import Judged
from tasks.pure.judge import judge as verdict_on
from tasks.pure.redact import Redactor
from tasks.pure.reply import Call
from tasks.pure.visible import visible
from tasks.replies import read_replies

__all__ = ["judge"]

_COLOUR = {Verdict.OK: "green", Verdict.EMPTY: "yellow", Verdict.TRUNCATED: "yellow"}
_TOLD = 5  # complaints about lines; more of them, or nothing else, mean that the file is something else


def judge(
    replies: Annotated[Path, typer.Argument(help="JSONL file; a line holds id, api, status, request, reply.")],
    as_json: Annotated[bool, typer.Option("--json", help="One object a line: id, verdict, why.")] = False,
) -> None:
    """Judge replies of a served API: ok, nan, garbage, truncated, empty or error.

    Exit code 0 when the file was read, whatever the verdicts are; 2 when a line of it could not be.

    Example: bringup judge replies.jsonl --json
    """
    redactor = Redactor.of_env(os.environ, patterns=load_run_settings().redact)
    table = Table("id", "verdict", "why", box=None, pad_edge=False)
    bad: list[BadInput] = []
    read = 0
    for call in read_replies(replies):
        if isinstance(call, BadInput):
            bad.append(call)
            continue
        read += 1
        judged = _judged(call, redactor)
        name = redactor.text(call.id)
        if as_json:
            print(json.dumps({"id": name, "verdict": judged.verdict, "why": judged.why}))
        else:
            verdict = Text(judged.verdict, style=_COLOUR.get(judged.verdict, "red"))
            table.add_row(Text(visible(name)), verdict, Text(visible(judged.why)))
    if read and not as_json:
        Console().print(table)
    for sentence in _complaints(replies, bad, read):
        print(f"bringup: {visible(redactor.text(sentence))}", file=sys.stderr)
    if bad:
        raise typer.Exit(ExitCode.BAD_INPUT)


def _judged(call: Call, redactor: Redactor) -> Judged:
    """The verdict on the reply as it is. An error quotes its body, cut: secrets go before, lest half of one is left."""
    judged = verdict_on(call)
    if judged.verdict is Verdict.ERROR:
        with suppress(RecursionError):  # nested so deeply that nothing of it is quoted
            judged = replace(judged, why=verdict_on(replace(call, reply=redactor.value(call.reply))).why)
    return replace(judged, why=redactor.text(judged.why))


def _complaints(file: Path, bad: Sequence[BadInput], read: int) -> list[str]:
    if len(bad) > _TOLD or (len(bad) > 1 and not read):
        return [f"{file}: {len(bad)} lines could not be read, the first is {bad[0].key}: {bad[0].problem}"]
    return [str(complaint) for complaint in bad] if bad or read else [f"{file}: holds no reply"]
