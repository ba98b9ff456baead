"""Many hosts in one table: a row a host, and what the worst of them comes to."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from settings.words import ExitCode
from tasks.pure.names import exit_code, run_state
from tasks.pure.record import RunRecord
from tasks.pure.report import actual_backend, headline

__all__ = ["FLEET_COLUMNS", "FleetRow", "fleet_headline", "row_of", "table_rows", "worst"]

FLEET_COLUMNS = ("host", "state", "rung", "actual backend", "seconds", "headline", "run")

# From what is wanted to what says least: a host that nobody could ask is worse than one that answered no.
_WORSE = (
    ExitCode.SERVING, ExitCode.NOT_SERVING, ExitCode.PREFLIGHT, ExitCode.HOST_BUSY, ExitCode.HOST_UNREACHABLE,
    ExitCode.BAD_INPUT, ExitCode.UNEXPECTED, ExitCode.INTERRUPTED,
)  # fmt: skip


class FleetRow(BaseModel):
    """How one host's run ended; `run_id` is "" where none began."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    state: str
    exit: ExitCode
    headline: str
    rung: str = ""
    backend: str = ""  # that really ran
    seconds: float | None = None
    run_id: str = ""


def row_of(record: RunRecord) -> FleetRow:
    """The row of a run that has ended."""
    won = next((a for a in record.attempts if a.n == record.winner), None)
    seconds = (record.ended_at - record.started_at).total_seconds() if record.ended_at else None
    return FleetRow(
        target=record.target, state=run_state(record.outcome), exit=exit_code(record),
        headline=record.halt.reason if record.halt and not record.attempts else headline(record),
        rung=won.rung if won else "", backend=actual_backend(won) if won else "", seconds=seconds,
        run_id=record.run_id,
    )  # fmt: skip


def table_rows(rows: Iterable[FleetRow]) -> list[dict[str, str]]:
    """The table for people, keyed by FLEET_COLUMNS."""
    return [
        dict(zip(FLEET_COLUMNS, (
            row.target, row.state, row.rung, row.backend, "" if row.seconds is None else f"{row.seconds:.0f}",
            row.headline, row.run_id,
        ), strict=True))
        for row in rows
    ]  # fmt: skip


def fleet_headline(rows: Sequence[FleetRow]) -> str:
    """One sentence, e.g. "18 of 20 serve; Exhausted: gpu3; Host busy: gpu7"."""
    others: dict[str, list[str]] = {}
    for row in rows:
        if row.exit is not ExitCode.SERVING:
            others.setdefault(row.state, []).append(row.target)
    serving = sum(row.exit is ExitCode.SERVING for row in rows)
    return "; ".join([f"{serving} of {len(rows)} serve", *(f"{s}: {', '.join(t)}" for s, t in others.items())])


def worst(rows: Iterable[FleetRow]) -> ExitCode:
    """The exit code of the host that came off worst."""
    return max((row.exit for row in rows), key=_WORSE.index, default=ExitCode.SERVING)
