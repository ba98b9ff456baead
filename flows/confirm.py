"""A/B/A: before a regression is told, the last good build and then this one run once more on the same host."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from prefect import get_run_logger

from flows.artifacts import quietly
from flows.run import Run
from flows.sitting import further_run
from settings.inputs import Inputs
from tasks.deadline import Deadline
from tasks.pure.build import DECIDED
from tasks.pure.comparison import Confirmation
from tasks.pure.confirm import UNDER_WAY, confirmation, unconfirmable
from tasks.pure.record import RunRecord, Source

__all__ = ["confirm"]


def confirm(run: Run, earlier: Sequence[RunRecord]) -> None:
    """The verdict, into the run's record. Both further runs together may take what the ladder's budget gives to one.

    `earlier`: all records, the newest first. A further run that an earlier sitting brought to a decision stands.
    """
    record, last = run.record, run.nights[0] if run.nights else None
    broke = record.compared is not None and any(f.what.startswith("rung ") for f in record.compared.worse)
    if record.obstacle and not broke:  # no rung was asked: further runs would tell nothing of the code
        run.confirm(Confirmation(verdict="host", why=record.obstacle))
        return
    if why := unconfirmable(record, last):
        run.confirm(Confirmation(verdict="unclear", why=why))
        return
    assert last is not None
    assert last.source is not None
    assert record.source is not None
    run.confirm(Confirmation(verdict="unclear", why=UNDER_WAY))  # what is true if we are cut
    have = {r.role: r for r in reversed(earlier) if r.confirms == record.run_id and r.outcome in DECIDED}
    left = Deadline.after(run.inputs.ladder.budget.wall_s)
    sources: dict[Literal["A", "B"], Source] = {"A": last.source, "B": record.source}
    found = None
    for role, source in sources.items():
        if role not in have:
            have[role] = further_run(
                record, _within(run.inputs, left), run.folder.path.parent, source, role, list(run.nights or ())
            )
        found = confirmation(record, last, have.get("A"), have.get("B"))
        if found is not None:
            break
    assert found is not None, "both have been run"
    get_run_logger().info("confirmed: %s: %s", found.verdict, found.why)
    run.confirm(found)
    quietly(run.show)


def _within(inputs: Inputs, left: Deadline) -> Inputs:
    """The same, with a budget of what is left."""
    budget = inputs.ladder.budget.model_copy(update={"wall_s": left.left_s})
    return replace(inputs, ladder=inputs.ladder.model_copy(update={"budget": budget}))
