"""What the Prefect UI shows of a run beside its states: the path, a page an attempt, progress, and the winner."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from prefect import runtime
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client

from tasks.picture import draw_text
from tasks.pure.draw import run_tree
from tasks.pure.explain import explain
from tasks.pure.fleet import FleetRow, fleet_headline, table_rows
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.report import WIDTH, actual_backend, attempt_page, block, branch_rows, command, headline
from tasks.runlog import log
from tasks.session import Progress

__all__ = [
    "ROW_KEY",
    "Bars",
    "FleetBar",
    "name_attempt",
    "quietly",
    "show_attempt",
    "show_branch",
    "show_fleet",
    "show_row",
    "show_winner",
]

ROW_KEY = "row"
_BRANCH = {  # heading -> column of branch_rows; what was asked, the widest, stands on the attempts' pages
    "#": "attempt", "rung": "rung", "backend": "actual backend", "outcome": "outcome", "then": "move",
    "reason": "reason", "s": "seconds",
}  # fmt: skip
_EVERY_S = 2.0  # a load shows thousands of steps; the server need not hear of each


def quietly(draw: Callable[[], None]) -> None:
    """Draw something; a fault in that is told, and is no fault of the run: the record tells it all."""
    try:
        draw()
    except Exception as e:
        log.warning("page.failed", why=f"{type(e).__name__}: {e}")


def show_branch(record: RunRecord) -> None:
    """The table "branch taken", and the tree with the path marked beneath the lines that say why."""
    rows = [{short: row[name].partition(" in ")[0] for short, name in _BRANCH.items()} for row in branch_rows(record)]
    create_table_artifact(key="branch-taken", table=rows, description=headline(record))
    tree = run_tree(record)
    parts = ["\n".join(block("\n".join(explain(record)), WIDTH))]
    if tree:
        parts.append("\n".join(block(draw_text(tree, width=WIDTH))))
    create_markdown_artifact(key="path", markdown="\n\n".join(parts) + "\n", description="why, and the path taken")


def show_row(row: FleetRow) -> None:
    """The run in one row; a fleet's table is made of these, wherever its runs ran."""
    create_table_artifact(key=ROW_KEY, table=[row.model_dump(mode="json")], description=row.headline)


def show_fleet(rows: Sequence[FleetRow]) -> None:
    """The table of all hosts."""
    create_table_artifact(key="fleet", table=table_rows(rows), description=fleet_headline(rows))


def show_attempt(attempt: Attempt) -> None:
    """One attempt's page: command, effective settings, diagnosis, verdicts, load test."""
    create_markdown_artifact(key="attempt", markdown=attempt_page(attempt), description=_of(attempt))


def _of(attempt: Attempt) -> str:
    """A description; "4. trtllm" would be the first item of a list: the page reads it as Markdown, too."""
    return f"attempt {attempt.n}, {attempt.rung}"


def show_winner(record: RunRecord, folder: Path) -> None:
    """The command that serves, and where the whole report lies."""
    won = next((a for a in record.attempts if a.n == record.winner), None)
    lines = [f"Report: `{folder / 'report.html'}`", "", f"Record: `{folder / 'record.json'}`"]
    if won:
        lines += ["", f"Lock: `{folder / 'run.lock.toml'}`", "", *block(command(won.argv), WIDTH)]
    title = f"{won.rung} serves: its command, and where the whole story lies" if won else "where the whole story lies"
    create_markdown_artifact(key="winner" if won else "report", markdown="\n".join(lines) + "\n", description=title)


def name_attempt(attempt: Attempt) -> None:
    """The attempt's run gets the backend that really ran into its name, e.g. "4-trtllm (trtllm)"."""
    backend, run = actual_backend(attempt), runtime.flow_run.get_id()
    if backend and run:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(run), name=f"{attempt.n}-{attempt.rung} ({backend})")


class Bars:
    """Shows progress as a bar on the page of the step that works, and passes it on. A bar that fails stops no step."""

    def __init__(self, also: Callable[[Progress], None]) -> None:
        self._also = also
        self._bar: tuple[tuple[int, str], UUID] | None = None
        self._at, self._broken = 0.0, False

    def __call__(self, seen: Progress) -> None:
        self._also(seen)
        if seen.fraction is None or self._broken:
            return
        what = (seen.n, seen.text.split(":")[0])
        fresh = self._bar is None or self._bar[0] != what
        if not fresh and time.monotonic() - self._at < _EVERY_S:
            return
        self._at, self._broken = time.monotonic(), True  # unless it can be drawn
        quietly(lambda: self._draw(what, seen))

    def _draw(self, what: tuple[int, str], seen: Progress) -> None:
        done, where = round(100 * (seen.fraction or 0.0), 1), f"attempt {seen.n}, {seen.rung}: " if seen.n else ""
        text = where + seen.text
        if self._bar and self._bar[0] == what:
            update_progress_artifact(self._bar[1], done, description=text)
        else:
            made = create_progress_artifact(done, key="progress", description=text)
            assert isinstance(made, UUID)
            self._bar = (what, made)
        self._broken = False


class FleetBar:
    """How many hosts of a fleet have ended."""

    def __init__(self) -> None:
        self._bar: UUID | None = None

    def show(self, ended: int, hosts: int) -> None:
        done, text = round(100 * ended / hosts, 1), f"{ended} of {hosts} hosts have ended"
        if self._bar:
            update_progress_artifact(self._bar, done, description=text)
            return
        made = create_progress_artifact(done, key="fleet-progress", description=text)
        assert isinstance(made, UUID)
        self._bar = made
