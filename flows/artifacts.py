"""What the Prefect UI shows of a run beside its states: the branch taken, and a page an attempt."""

from collections.abc import Callable
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from tasks.pure.record import Attempt, RunRecord
from tasks.pure.report import attempt_page, branch_rows, headline
from tasks.runlog import log

__all__ = ["show_attempt", "show_branch"]


def show_branch(record: RunRecord) -> None:
    """The table "branch taken" of the whole run."""
    _show(
        create_table_artifact, key="branch-taken", table=list(branch_rows(record)), description=headline(record)
    )


def show_attempt(attempt: Attempt) -> None:
    """One attempt's page: command, effective settings, diagnosis, verdicts, load test."""
    _show(
        create_markdown_artifact, key="attempt", markdown=attempt_page(attempt),
        description=f"{attempt.n}. {attempt.rung}",
    )  # fmt: skip


def _show(create: Callable[..., Any], **what: Any) -> None:
    """A picture in the UI is worth no run: when its server is away, the record still has everything."""
    try:
        create(**what)
    except Exception as e:
        log.warning("artifact.not_shown", key=what["key"], why=f"{type(e).__name__}: {e}")
