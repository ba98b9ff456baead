"""`bringup diagnose`: what was the first cause in a log, and which step it calls for."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from settings.catalogue import shipped_catalogue
from settings.milestones import shipped_milestones
from settings.run import load_run_settings
from settings.source import SETTINGS_DIR, BadInput, nearest
from settings.words import ExitCode
from tasks.diagnose import diagnose_file, excerpt
from tasks.pure.diagnose.lines import bare
from tasks.pure.record import Diagnosis
from tasks.pure.redact import Redactor
from tasks.pure.visible import visible

__all__ = ["diagnose"]


def diagnose(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="log files; - is standard input")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line on stdout")] = False,
    engine: Annotated[str | None, typer.Option(help="sglang or vllm; default: read from the log")] = None,
) -> None:
    """Name the first cause of a failure in each log, what it means and what to try. Exit 0 whatever the logs say.

    Example: bringup diagnose server.log --json
    """
    engines = sorted(path.stem for path in (SETTINGS_DIR / "engines").glob("*.toml"))
    if engine is not None and engine not in engines:
        raise BadInput("diagnose", "--engine", f"'{engine}' is not {' or '.join(engines)}", nearest(engine, engines))
    redactor = Redactor.of_env(os.environ, patterns=load_run_settings().redact)
    catalogue, milestones = shipped_catalogue(), shipped_milestones()
    console = Console()
    unreadable = False
    for name in logs:
        try:
            found = redactor.model(diagnose_file(name, catalogue, milestones, engine=engine))
        except BadInput as e:
            print(f"bringup: {visible(str(e))}", file=sys.stderr)
            unreadable = True
            continue
        if as_json:
            print(json.dumps(_as_json(name, found)), flush=True)
        else:
            _show(console, name, found, redactor)
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


def _show(console: Console, name: str, found: Diagnosis, redactor: Redactor) -> None:
    colour = "green" if found.kind == "none" else "yellow" if found.kind == "unknown" else "red"
    where = f"[dim]{_safe(name if name == '-' else Path(name).name)}[/dim]"
    console.print(
        f"{where}  [bold {colour}]{found.kind}[/]  [dim]phase[/] {found.phase}  [dim]component[/] {found.component}"
    )
    console.print(f"  {_safe(found.means)}")
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim")
    rows.add_column()
    if found.try_:
        rows.add_row("  try", _safe(found.try_))
    if found.flag:
        rows.add_row("  named by the log", _safe(" ".join(x for x in (found.flag, found.value) if x)))
    rows.add_row("  step", str(found.action))
    if found.source:
        rows.add_row("  source", escape(found.source))
    for seen in found.also_seen:
        rows.add_row("  also seen", _safe(seen))
    console.print(rows)
    if found.evidence.line is not None:
        rank = f" ({found.evidence.rank})" if found.evidence.rank else ""
        console.print(f"  [dim]line {found.evidence.line}{_safe(rank)}[/dim]")
        lines = excerpt(name, found.evidence.line)
        lines = lines or [(found.evidence.line, found.evidence.text.encode("utf-8", "replace"))]
        shown = "\n".join(_printable(bare(raw).decode("utf-8", "replace")) for _, raw in lines)
        for (number, _), line in zip(lines, redactor.text(shown).split("\n"), strict=False):
            here = number == found.evidence.line
            text = escape(line[:240])
            style, sign = ("bold", ">") if here else ("dim", " ")
            console.print(f"  [{style}]{sign}{number:>7}  {text}[/]", soft_wrap=True, highlight=False)
    console.print()


def _safe(text: str) -> str:
    return escape(visible(text))


def _printable(text: str) -> str:
    """Without what would move the reader's cursor or colour their screen."""
    return "".join(c if c.isprintable() else " " for c in text)
