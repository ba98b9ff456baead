"""How a target did over time as one HTML page: the branch of each run, its figures, and where the build changed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.charts import Chart, chart
from tasks.page import rendered
from tasks.pure.build import DECIDED
from tasks.pure.history import history, winner_of
from tasks.pure.record import RunRecord
from tasks.pure.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["html_history"]

_TOP = 40  # runs whose paths are listed in full
_NONE, _OPEN = "(none served)", "(no decision)"
_SERVED = ("o", "#009e73", "#009e73")  # mark, colour, filling
_MARKS = {_NONE: ("X", "#d55e00", "#d55e00"), _OPEN: ("s", "#6b7280", "none")}


def html_history(runs: Sequence[RunRecord], damaged: Sequence[str]) -> str:
    """The page; runs are in the order of time. Text of others is escaped as in a run's own page."""
    from markupsafe import Markup

    targets = []
    for name in dict.fromkeys(run.target for run in runs):
        mine = [run for run in runs if run.target == name]
        drawn = [(c.title, Markup(c.svg), c.note) for c in _charts(name, mine)]
        targets.append({"name": name, "rows": history(mine)[::-1][:_TOP], "of": len(mine), "charts": drawn})
    return rendered("trend.html.j2", targets=targets, damaged=damaged)


def _charts(target: str, runs: Sequence[RunRecord]) -> list[Chart]:
    found = [_rungs(target, runs)]
    if any(_speeds(run) for run in runs):
        found.append(_speed(target, runs))
    return found


def _rungs(target: str, runs: Sequence[RunRecord]) -> Chart:
    served = [(run, won.rung if (won := winner_of(run)) else _without(run)) for run in runs]
    names = sorted({name for _, name in served}, key=lambda name: (name != _OPEN, name != _NONE, name))

    def draw(axes: "Axes") -> None:
        for row, name in enumerate(names):
            mark, colour, fill = _MARKS.get(name, _SERVED)
            when = [_when(run) for run, its in served if its == name]
            axes.plot(when, [row] * len(when), mark, color=colour, markerfacecolor=fill, clip_on=False)
        axes.set_yticks(range(len(names)), [visible(name)[:24] for name in names])
        axes.set_ylim(-0.6, len(names) - 0.4)
        _marks(axes, runs)

    said = "; ".join(f"{run.started_at:%Y-%m-%d}: {name}" for run, name in served[-_TOP:])
    note = (
        "Circle: the rung that served. Cross: none did. Hollow square: no decision, since the run is going on, or was "
        "refused, cancelled or lost. A dotted line: another build from here on."
    )
    return chart(f"Rung that served on {target}", said, note, draw, high=1.6 + 0.35 * len(names))


def _speed(target: str, runs: Sequence[RunRecord]) -> Chart:
    measured = [(run, speeds) for run in runs if (speeds := _speeds(run))]

    def draw(axes: "Axes") -> None:
        when, middle = [_when(run) for run, _ in measured], [history([run])[0] for run, _ in measured]
        low, high = [min(s) for _, s in measured], [max(s) for _, s in measured]
        axes.fill_between(when, low, high, alpha=0.2, color="#0072b2")
        axes.plot(when, [row["output_tokens_per_s"] for row in middle], "o-", color="#0072b2", markersize=4)
        axes.set_ylim(0)
        axes.set_ylabel("output tokens/s")
        _marks(axes, runs)

    said = "; ".join(f"{run.started_at:%Y-%m-%d}: {max(s):.0f}" for run, s in measured[-_TOP:])
    note = "Median of the run's valid load tests; the band reaches from the lowest to the highest of them."
    return chart(f"Throughput on {target}", said, note, draw)


def _marks(axes: "Axes", runs: Sequence[RunRecord]) -> None:
    """A line where the build changed, with its release."""
    before: Any = None
    for run in runs:
        build = (run.build.version, run.build.commit)
        if build != before and run.build.version:
            axes.axvline(_when(run), color="#6b7280", linewidth=0.8, linestyle=":")
            axes.annotate(visible(run.build.version)[:16], (_when(run), 1), xycoords=("data", "axes fraction"),
                          rotation=45, fontsize=8, xytext=(0, 2), textcoords="offset points")  # fmt: skip
            before = build
    from matplotlib import dates

    first, last = _when(runs[0]), _when(runs[-1])
    room = max(0.04 * (last - first), 0.02)  # days; so that no mark stands on the edge, and one run has an axis, too
    axes.set_xlim(first - room, last + room)
    untyped: Any = dates
    places = untyped.AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(places)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(places))
    axes.set_xlabel("UTC")


def _without(run: RunRecord) -> str:
    return _NONE if run.outcome in DECIDED else _OPEN


def _speeds(run: RunRecord) -> list[float]:
    won = winner_of(run)
    points = won.bench if won else ()
    return [p.output_tokens_per_s for p in points if p.valid and p.output_tokens_per_s]


def _when(run: RunRecord) -> float:
    """Days since the epoch, as matplotlib counts dates."""
    return run.started_at.timestamp() / 86_400
