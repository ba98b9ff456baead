"""Which run of a load test comes next on one launch, and what all its runs together say.

`next_run` is a function of what was declared and of the points so far, so a load test can be replayed from a record.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from settings.load_test import LoadTest, Slo
from settings.suite import BenchProfile
from tasks.pure.record import BenchPoint, LoadFigure

__all__ = ["TRIES", "Next", "capacity", "figures", "next_concurrency", "next_run", "peaks_unmeasured", "spread"]

TRIES = 3  # invalid runs of a point: the first and two repeats on the same server (contracts §2, Pass)
_FEWEST = 3  # valid runs below which a spread says nothing
_FIGURES = tuple(
    name
    for name, field in BenchPoint.model_fields.items()
    if field.annotation == float | None and name not in ("duration_s", "success_rate")
)


@dataclass(frozen=True, slots=True)
class Next:
    """A run to make, or why none follows."""

    profile: BenchProfile | None
    repeat: int = 0  # 1-based, of this point
    why: str = ""


def next_run(
    test: LoadTest, profiles: Sequence[BenchProfile], done: Sequence[BenchPoint], spent_s: float
) -> Next:
    """First the sweep, from the highest concurrency down; each point until it has enough runs; then the search."""
    if done and spent_s >= test.budget_s:
        return Next(None, why=f"the budget of {test.budget_s:g} s is spent")
    for profile, concurrency in _points(test, profiles, done):
        runs = _runs(done, profile.name, concurrency)
        if _wants_more(test, runs):
            return Next(profile.at(concurrency), len(runs) + 1)
    if test.search and test.slo is not None:
        for profile in profiles:
            concurrency_ = next_concurrency(_met(test.slo, profile.name, done), test.precision)
            if concurrency_ is not None:
                return Next(profile.at(concurrency_), 1)
    return Next(None, why="every point was measured" if not test.search else "every point was measured and searched")


def next_concurrency(met: Mapping[int, bool], precision: float = 0.0) -> int | None:
    """The concurrency to try between the highest that meets the SLO and the lowest that misses it; None: found.

    A concurrency that meets it above one that misses it is luck, and is not built upon.
    """
    missed = [c for c, good in met.items() if not good]
    if not missed:
        return None
    first = min(missed)
    last = capacity(met) or 0
    return None if first - last <= max(1, int(precision * first)) else (last + first) // 2


def capacity(met: Mapping[int, bool]) -> int | None:
    """The highest concurrency that meets the SLO, below the first that misses it; None when there is none."""
    first = min((c for c, good in met.items() if not good), default=None)
    return max((c for c, good in met.items() if good and (first is None or c < first)), default=None)


def figures(
    test: LoadTest, profiles: Sequence[BenchProfile], done: Sequence[BenchPoint], ended: str
) -> tuple[LoadFigure, ...]:
    """One for each point, those that were never run included."""
    return tuple(
        _figure(test.slo, profile.name, concurrency, _runs(done, profile.name, concurrency), ended)
        for profile, concurrency in _points(test, profiles, done)
    )


def peaks_unmeasured(found: Sequence[LoadFigure]) -> tuple[LoadFigure, ...]:
    """Of each profile the figure of its highest concurrency asked for, where that has no valid run.

    A server that could only be measured below its peak has not been seen to bear it.
    """
    highest: dict[str, LoadFigure] = {}
    for figure in found:
        if figure.profile not in highest or figure.concurrency > highest[figure.profile].concurrency:
            highest[figure.profile] = figure
    return tuple(f for f in highest.values() if not f.runs)


def spread(values: Sequence[float]) -> float:
    """The median absolute deviation."""
    middle = statistics.median(values)
    return statistics.median(abs(v - middle) for v in values)


def _points(
    test: LoadTest, profiles: Sequence[BenchProfile], done: Sequence[BenchPoint]
) -> list[tuple[BenchProfile, int]]:
    """Those declared, the highest concurrency first, then those that the search has begun."""
    declared = [(p, c) for p in profiles for c in test.concurrency or (p.concurrency,)]
    declared.sort(key=lambda point: -point[1])
    known = {(p.name, c) for p, c in declared}
    by_name = {p.name: p for p in profiles}
    for point in done:
        key = (point.profile, point.concurrency or 0)
        if key not in known and point.profile in by_name and point.concurrency:
            known.add(key)
            declared.append((by_name[point.profile], point.concurrency))
    return declared


def _runs(done: Sequence[BenchPoint], profile: str, concurrency: int) -> list[BenchPoint]:
    return [p for p in done if (p.profile, p.concurrency) == (profile, concurrency)]


def _wants_more(test: LoadTest, runs: Sequence[BenchPoint]) -> bool:
    valid = [p for p in runs if p.valid]
    if len(runs) - len(valid) >= TRIES or len(valid) >= test.repeats:
        return False
    rates = [p.output_tokens_per_s for p in valid if p.output_tokens_per_s is not None]
    return len(rates) < _FEWEST or spread(rates) > test.spread * statistics.median(rates)


def _figure(slo: Slo | None, profile: str, concurrency: int, runs: Sequence[BenchPoint], ended: str) -> LoadFigure:
    valid = [p for p in runs if p.valid]
    median, mad = {}, {}
    for name in _FIGURES:
        values = [v for p in valid if (v := getattr(p, name)) is not None]
        if values:
            median[name], mad[name] = statistics.median(values), spread(values)
    why = _missed(slo, median, runs) if slo and runs else ""
    return LoadFigure(
        profile=profile, concurrency=concurrency, runs=len(valid), invalid=len(runs) - len(valid),
        median=median, mad=mad,
        slo_met=not why if slo and runs else None,
        why=why or ("" if valid else f"no valid run: {runs[-1].why}" if runs else f"not run: {ended}"),
    )  # fmt: skip


def _missed(slo: Slo, median: Mapping[str, float], runs: Sequence[BenchPoint]) -> str:
    """Why a point that was run misses the SLO; "" when it keeps it. What was not measured is not kept."""
    valid = [p for p in runs if p.valid]
    if not valid:
        return f"no valid run: {runs[-1].why}"
    for name in ("ttft_p99_ms", "tpot_p99_ms"):
        most = getattr(slo, name)
        if most is not None and name not in median:
            return f"{name} was not measured, it must be {most:g} at most"
        if most is not None and median[name] > most:
            return f"{name} is {median[name]:.1f}, it must be {most:g} at most"
    rates = [p.success_rate for p in runs if p.success_rate is not None]
    if rates and statistics.median(rates) < slo.min_success_rate:
        return f"{statistics.median(rates):.1%} of the requests completed, it must be {slo.min_success_rate:.1%}"
    return ""


def _met(slo: Slo, profile: str, done: Sequence[BenchPoint]) -> dict[int, bool]:
    asked = {p.concurrency for p in done if p.profile == profile and p.concurrency}
    found = (_figure(slo, profile, c, _runs(done, profile, c), "") for c in asked)
    return {f.concurrency: bool(f.slo_met) for f in found}
