"""What every test of this tree shares: with BRINGUP_NO_SKIPS=1 (set by .ci/run) a skipped test is a failed one."""

import os
from collections.abc import Generator

import pytest

__all__ = ["NO_SKIPS"]

NO_SKIPS = "BRINGUP_NO_SKIPS"

os.environ.pop("PREFECT_API_URL", None)   # somebody's own server is no place for test runs


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
