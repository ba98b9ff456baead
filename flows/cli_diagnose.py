"""`bringup diagnose`: what was the first cause in a log, and which step it calls for."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from settings.catalogue import shipped_catalogue
from settings.milestones import shipped_milestones
from settings.source import BadInput
from settings.words import ExitCode
from tasks.diagnose import diagnose_file, excerpt
from tasks.pure.diagnose.lines import bare
from tasks.pure.record import Diagnosis

__all__ = ["diagnose"]


def diagnose(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="log files; - is standard input")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line on stdout")] = False,
    engine: Annotated[str | None, typer.Option(help="sglang or vllm; default: read from the log")] = None,
) -> None:
    """Name the first cause of a failure in each log, what it means and what to try. Exit 0 whatever the logs say.

    Example: bringup diagnose server.log --json
    """
    catalogue, milestones = shipped_catalogue(), shipped_milestones()
    console = Console()
    unreadable = False
    for name in logs:
        try:
            found = diagnose_file(name, catalogue, milestones, engine=engine)
        except BadInput as e:
            print(f"bringup: {e}", file=sys.stderr)
            unreadable = True
            continue
        if as_json:
            print(json.dumps(_as_json(name, found), ensure_ascii=False), flush=True)
        else:
            _show(console, name, found)
    if unreadable:
        raise typer.Exit(ExitCode.BAD_INPUT)


def _as_json(name: str, found: Diagnosis) -> dict[str, Any]:
    evidence = found.evidence
    return {
        "file": name, "engine": found.engine, "kind": found.kind, "phase": found.phase, "component": found.component,
        "action": found.action, "evidence": {"line": evidence.line, "text": evidence.text, "rank": evidence.rank},
        "means": found.means, "try": found.try_, "flag": found.flag, "value": found.value,
        "also_seen": list(found.also_seen),
    }  # fmt: skip


def _show(console: Console, name: str, found: Diagnosis) -> None:
    colour = "green" if found.kind == "none" else "yellow" if found.kind == "unknown" else "red"
    where = f"[dim]{escape(name if name == '-' else Path(name).name)}[/dim]"
    console.print(
        f"{where}  [bold {colour}]{found.kind}[/]  [dim]phase[/] {found.phase}  [dim]component[/] {found.component}"
    )
    console.print(f"  {escape(found.means)}")
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim")
    rows.add_column()
    if found.try_:
        rows.add_row("  try", escape(found.try_))
    if found.flag:
        rows.add_row("  named by the log", escape(" ".join(x for x in (found.flag, found.value) if x)))
    rows.add_row("  step", str(found.action))
    if found.source:
        rows.add_row("  source", escape(found.source))
    for seen in found.also_seen:
        rows.add_row("  also seen", escape(seen))
    console.print(rows)
    if found.evidence.line is not None:
        rank = f" ({found.evidence.rank})" if found.evidence.rank else ""
        console.print(f"  [dim]line {found.evidence.line}{escape(rank)}[/dim]")
        for number, raw in excerpt(name, found.evidence.line) or [(found.evidence.line, found.evidence.text.encode())]:
            here = number == found.evidence.line
            text = escape(_printable(bare(raw).decode("utf-8", "replace"))[:240])
            style, sign = ("bold", ">") if here else ("dim", " ")
            console.print(f"  [{style}]{sign}{number:>7}  {text}[/]", soft_wrap=True, highlight=False)
    console.print()


def _printable(text: str) -> str:
    """Without what would move the reader's cursor or colour their screen."""
    return "".join(c if c.isprintable() else " " for c in text)
