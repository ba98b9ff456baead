"""What every test of this tree shares: with BRINGUP_NO_SKIPS=1 (set by .ci/run) a skipped test is a failed one.

And a run of cells of the fault matrix ends with their table.
"""

import os
from collections.abc import Generator, Iterable

import pytest

from settings.words import Stage

__all__ = ["NO_SKIPS"]

NO_SKIPS = "BRINGUP_NO_SKIPS"

os.environ.pop("PREFECT_API_URL", None)   # somebody's own server is no place for test runs
_COLUMNS = ("install", *Stage)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """A cell carries its fault and stage into its reports, from the workers of xdist as well."""
    for item in items:
        if fault := item.get_closest_marker("fault"):
            stage = fault.kwargs.get("stage") or getattr(item, "callspec").params["stage"]  # noqa: B009
            item.user_properties.append(("cell", (fault.args[0], str(stage))))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What came of each cell that ran: a row a fault, a column a stage, the seconds that it took."""
    rows: dict[str, dict[str, str]] = {}
    for outcome in ("passed", "skipped", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, ()):
            for fault, stage in (value for name, value in report.user_properties if name == "cell"):
                said = f"{report.duration:.0f} s" if outcome == "passed" else outcome.upper()
                rows.setdefault(fault, {})[stage] = said
    if not rows:
        return
    columns = [column for column in _COLUMNS if any(column in row for row in rows.values())]
    wide = max(map(len, rows))
    terminalreporter.section("fault × stage")
    for fault, row in {"": {column: column for column in columns}, **rows}.items():
        cells = "".join(f"{row.get(column, '-'):>11}" for column in columns)
        terminalreporter.write_line(f"{fault:<{wide}}{cells}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """An expected failure (xfail) also reports as skipped; it is not one."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module can skip itself while it is imported."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and os.environ.get(NO_SKIPS) == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{NO_SKIPS}=1 and yet: {reason}"
