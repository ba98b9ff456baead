"""The load test on the page of an attempt: a row a point, the samples beside it, and each run that does not count."""

from collections.abc import Iterable

from settings.words import Verdict
from tasks.pure.record import BenchPoint, LoadFigure, LoadSample, LoadSummary

__all__ = ["LOAD_COLUMNS", "load_notes", "load_rows"]

LOAD_COLUMNS = (
    "load", "at once", "runs", "output tok/s", "± MAD", "tok/s/GPU", "tok/s/user", "TTFT p99 ms", "TPOT p99 ms",
    "E2E p99 ms", "goodput req/s", "SLO", "why",
)  # fmt: skip


def load_rows(summary: LoadSummary) -> list[dict[str, str]]:
    """The points, keyed by LOAD_COLUMNS; what was not measured is "?"."""
    return [_row(figure) for figure in summary.figures]


def load_notes(summary: LoadSummary, points: Iterable[BenchPoint]) -> Iterable[str]:
    """Sentences below the table."""
    runs = list(points)
    warm = sorted({p.warmup_requests for p in runs if p.warmup_requests is not None})
    if warm:
        counts = " or ".join(map(str, warm))
        yield f"Medians over the valid runs. Excluded: {counts} warm-up requests before each run, and invalid runs."
    if summary.samples:
        yield _asked(summary.samples)
    if summary.said:
        yield f"SLO: {summary.said}."
    for number, point in enumerate(runs, 1):
        if not point.valid:
            yield f"Run {number} ({point.profile}, {point.concurrency} at once) is not valid: {point.why}."
    if summary.ended:
        yield f"It ended: {summary.ended}."


def _row(figure: LoadFigure) -> dict[str, str]:
    names = (
        "output_tokens_per_s_per_gpu", "output_tokens_per_s_per_user", "ttft_p99_ms", "tpot_p99_ms", "e2e_p99_ms",
        "goodput_requests_per_s",
    )  # fmt: skip
    of = f"{figure.runs}" + (f" (+{figure.invalid} invalid)" if figure.invalid else "")
    slo = {True: "met", False: "missed", None: ""}[figure.slo_met]
    rate, mad = figure.median.get("output_tokens_per_s"), figure.mad.get("output_tokens_per_s")
    cells = (
        figure.profile, str(figure.concurrency), of, _number(rate), _number(mad),
        *(_number(figure.median.get(name)) for name in names), slo, figure.why,
    )  # fmt: skip
    return dict(zip(LOAD_COLUMNS, cells, strict=True))


def _asked(samples: Iterable[LoadSample]) -> str:
    all_ = list(samples)
    bad = [s for s in all_ if s.verdict is not Verdict.OK]
    said = f"Asked beside the load: {len(all_)} questions, {len(all_) - len(bad)} well answered"
    return said + "".join(f"; after {s.into_s:.1f} s {s.verdict}: {s.why}" for s in bad) + "."


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.1f}"
