"""A row says how a host's run ended, whatever that was; the worst of them is the fleet's end."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from settings.words import AttemptOutcome, ExitCode, RunOutcome
from tasks.pure.fleet import FLEET_COLUMNS, FleetRow, fleet_headline, row_of, table_rows, worst
from tasks.pure.record import Attempt, Build, Halt, HaltBy, HostSummary, LadderRef, RunRecord

BEGAN = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)


def _record(outcome: RunOutcome, *, by: HaltBy = "rung", winner: int | None = None, tried: bool = True) -> RunRecord:
    passed = AttemptOutcome.PASSED if winner else AttemptOutcome.FAILED
    attempt = Attempt(n=1, id="01-auto", rung="auto", outcome=passed, effective={"sparse-decode": "flashmla_kv"})
    return RunRecord(
        run_id="20261129-020000-gpu8-aaaa", started_at=BEGAN, ended_at=BEGAN + timedelta(seconds=90), outcome=outcome,
        target="gpu8", ladder=LadderRef(name="l", sha256="0"), build=Build(engine="sglang"),
        host=HostSummary(name="gpu8"), lease_s=90, attempts=(attempt,) if tried else (), winner=winner,
        halt=Halt(reason="because of this", by=by),
    )  # fmt: skip


def _row(exit_: ExitCode, state: str = "Serving", target: str = "gpu1") -> FleetRow:
    return FleetRow(target=target, state=state, exit=exit_, headline="")


def test_a_run_that_serves_names_its_rung_and_what_really_ran() -> None:
    row = row_of(_record(RunOutcome.SERVING, winner=1))
    assert ("gpu8", "Serving", "auto", "flashmla_kv", 90.0) == (
        row.target, row.state, row.rung, row.backend, row.seconds
    )  # fmt: skip
    assert (ExitCode.SERVING, "Serving on auto (flashmla_kv); 90 s") == (row.exit, row.headline)


def test_a_run_that_tried_nothing_says_why() -> None:
    row = row_of(_record(RunOutcome.HOST_BUSY, by="host", tried=False))
    assert ("Host busy", ExitCode.HOST_BUSY, "because of this", "") == (row.state, row.exit, row.headline, row.rung)
    refused = row_of(_record(RunOutcome.STOPPED, by="preflight", tried=False))
    assert ExitCode.PREFLIGHT is refused.exit


def test_every_outcome_has_a_row() -> None:
    rows = [row_of(_record(outcome)) for outcome in RunOutcome]
    assert len(RunOutcome) == len(table_rows(rows))
    assert all(tuple(row) == FLEET_COLUMNS for row in table_rows(rows))


@given(st.lists(st.sampled_from(ExitCode), max_size=30))
def test_the_worst_is_one_of_them_and_good_only_when_all_are(codes: list[ExitCode]) -> None:
    end = worst(map(_row, codes))
    assert end in (codes or [ExitCode.SERVING])
    assert (end is ExitCode.SERVING) == (set(codes) <= {ExitCode.SERVING})


def test_a_host_that_nobody_could_ask_is_worse_than_one_that_does_not_serve() -> None:
    said_no, unreachable, cut = ExitCode.NOT_SERVING, ExitCode.HOST_UNREACHABLE, ExitCode.INTERRUPTED
    assert unreachable is worst(map(_row, [said_no, unreachable, ExitCode.SERVING]))
    assert cut is worst(map(_row, [cut, *ExitCode]))


def test_the_headline_counts_and_names_those_that_do_not_serve() -> None:
    rows = [
        _row(ExitCode.SERVING), _row(ExitCode.NOT_SERVING, "Exhausted", "gpu3"),
        _row(ExitCode.HOST_BUSY, "Host busy", "gpu7"), _row(ExitCode.NOT_SERVING, "Exhausted", "gpu9"),
    ]  # fmt: skip
    assert "1 of 4 serve; Exhausted: gpu3, gpu9; Host busy: gpu7" == fleet_headline(rows)
