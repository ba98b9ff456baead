"""The plots of a report, as SVG elements that need nothing from elsewhere. Matplotlib is loaded when one is drawn."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from settings.words import Stage, StageOutcome
from tasks.pure.record import Attempt, BenchPoint, RunRecord
from tasks.pure.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Chart", "chart", "charts_of"]

# Okabe and Ito's colours, which people who see fewer colours can tell apart; a hatch says it once more.
_STAGES = {
    "preflight": "#999999", "launch": "#56b4e9", "ready": "#0072b2", "warmup": "#f0e442",
    "decode": "#e69f00", "bench": "#009e73", "recheck": "#cc79a7", "stop": "#d9d9d9",
}  # fmt: skip
_FAILED = "///"
_STYLE: Any = {  # matplotlib's stubs want each key as a literal
    "svg.fonttype": "none", "svg.hashsalt": "bringup", "text.parse_math": False, "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"], "font.size": 11, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, what it shows in words, and how to read it."""

    title: str
    svg: str
    note: str


def charts_of(record: RunRecord) -> tuple[Chart, ...]:
    """The timeline, and for load tests that gave figures: speed per GPU against speed per user, wait against load."""
    found = [_timeline(record)] if any(a.stages for a in record.attempts) else []
    points = [(a, p) for a in record.attempts for p in a.bench]
    if any(_speeds(a, p, record) for a, p in points):
        found.append(_frontier(record, points))
    if any(p.ttft_p99_ms and p.max_concurrency for _, p in points):
        found.append(_waits(points, _ttft_limit_ms(record)))
    return tuple(found)


def _timeline(record: RunRecord) -> Chart:
    tried = [a for a in record.attempts if a.stages]

    def draw(axes: "Axes") -> None:
        used: set[str] = set()
        for row, attempt in enumerate(tried):
            for s in attempt.stages:
                colour = _STAGES[s.stage]
                used.add(s.stage)
                start = (s.started_at - record.started_at).total_seconds()
                failed = s.outcome is StageOutcome.FAILED
                axes.barh(row, max(s.wall_s, 0.02), left=start, height=0.5, color=colour, edgecolor="#222222",
                          linewidth=0.6, hatch=_FAILED if failed else "")  # fmt: skip
            first = next((s for s in attempt.stages if s.stage is Stage.LAUNCH), attempt.stages[0])
            at = (first.started_at - record.started_at).total_seconds()
            for phase, seconds in attempt.phases.items():
                axes.barh(row + 0.36, seconds, left=at, height=0.14, color="#ffffff", edgecolor="#444444")
                if seconds > 0.09 * _span_s(record):
                    axes.text(at + seconds / 2, row + 0.37, phase, ha="center", va="center", fontsize=7)
                at += seconds
        axes.set_yticks(range(len(tried)), [f"{a.n}. {_label(a.rung)}" for a in tried])
        axes.invert_yaxis()
        axes.set_xlim(0)
        axes.set_xlabel(_time_axis(axes, _span_s(record)))
        from matplotlib.patches import Patch

        marks = [Patch(facecolor=_STAGES[s], edgecolor="#222222", label=s) for s in _STAGES if s in used]
        marks.append(Patch(facecolor="#ffffff", edgecolor="#222222", hatch=_FAILED, label="failed here"))
        axes.figure.legend(handles=marks, ncols=5, loc="outside lower center", frameon=False, fontsize=9)

    said = "; ".join(f"{a.n}. {a.rung}: {sum(s.wall_s for s in a.stages):.0f} s" for a in tried)
    note = "Bars: our steps; hatched: the one that failed. Thin boxes under them: the engine's phases, from its log."
    return chart("Timeline of attempts", said, note, draw, high=1.4 + 0.62 * len(tried))


def _frontier(record: RunRecord, points: Sequence[tuple[Attempt, BenchPoint]]) -> Chart:
    placed = [(at, p) for a, p in points if (at := _speeds(a, p, record))]

    def draw(axes: "Axes") -> None:
        for (x, y), p in placed:
            _dot(axes, x, y, p)
        best = _pareto([at for at, p in placed if p.valid])
        if len(best) > 1:
            axes.step([x for x, _ in best], [y for _, y in best], where="post", color="#0072b2", linewidth=1)
        axes.set_xlabel("tokens/s per user (1000 / median TPOT in ms)")
        axes.set_ylabel("output tokens/s per GPU")
        _from_zero(axes)

    said = "; ".join(f"{p.profile}: {y:.1f} tok/s per GPU at {x:.1f} tok/s per user" for (x, y), p in placed)
    note = (
        "TPOT: time per output token after the first. Per GPU: output tokens of all requests, by second and GPU. "
        "Hollow: not valid, with the reason in the table. The steps join the points that none beats in both."
    )
    return chart("Throughput per GPU against speed per user", said, note, draw)


def _waits(points: Sequence[tuple[Attempt, BenchPoint]], limit_ms: float | None) -> Chart:
    placed = [(p.max_concurrency, p.ttft_p99_ms, p) for _, p in points if p.max_concurrency and p.ttft_p99_ms]

    def draw(axes: "Axes") -> None:
        for x, y, p in placed:
            _dot(axes, x, y, p)
        if limit_ms:
            axes.axhline(limit_ms, color="#d55e00", linewidth=1.2, linestyle="--")
            axes.annotate(f"SLO: {limit_ms:g} ms", (1, limit_ms), xycoords=("axes fraction", "data"), ha="right",
                          xytext=(0, 4), textcoords="offset points", fontsize=9)  # fmt: skip
        axes.set_xlabel("requests at once")
        axes.set_ylabel("TTFT p99, ms")
        _from_zero(axes)

    said = "; ".join(f"{p.profile}: {y:.0f} ms at {x} requests" for x, y, p in placed)
    said += f"; the SLO allows {limit_ms:g} ms" if limit_ms else ""
    note = "TTFT: time to the first token. p99: 99 of 100 requests waited no longer. Hollow: not valid."
    note += " The dashed line is the SLO." if limit_ms else ""
    return chart("Wait for the first token against load", said, note, draw)


def _ttft_limit_ms(record: RunRecord) -> float | None:
    return next((limit for a in record.attempts if a.load and (limit := a.load.slo.get("ttft_p99_ms"))), None)


def _dot(axes: "Axes", x: float, y: float, p: BenchPoint) -> None:
    axes.plot(x, y, "o", markersize=9, markerfacecolor="#0072b2" if p.valid else "none", markeredgecolor="#0072b2")
    axes.annotate(_label(p.profile), (x, y), xytext=(8, 6), textcoords="offset points", fontsize=9)


def _from_zero(axes: "Axes") -> None:
    axes.set_xlim(0, axes.get_xlim()[1] * 1.15)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
    axes.grid(alpha=0.3)


def _speeds(a: Attempt, p: BenchPoint, record: RunRecord) -> tuple[float, float] | None:
    """Tokens/s of one user and of one GPU; None where the load test gave no such figure."""
    if not p.tpot_median_ms or not p.output_tokens_per_s:
        return None
    asked = str(a.asked.get("tp-size", ""))
    gpus = int(asked) if asked.isdecimal() and int(asked) > 0 else max(1, len(record.host.gpus))
    return 1000 / p.tpot_median_ms, p.output_tokens_per_s / gpus


def _pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats in both, from left to right."""
    return sorted(p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points))


def _time_axis(axes: "Axes", span_s: float) -> str:
    """Ticks that a person counts in: seconds for a rehearsal, minutes or hours for a real load. The label."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    unit, factor = ("seconds", 1) if span_s < 180 else ("minutes", 60) if span_s < 3 * 3600 else ("hours", 3600)
    high = axes.get_xlim()[1] / factor
    places = MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]).tick_values(0, high)
    axes.set_xticks([place * factor for place in places if 0 <= place <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds / factor:g}"))
    return f"{unit} since the run began"


def _span_s(record: RunRecord) -> float:
    last = [s for a in record.attempts for s in a.stages][-1]
    return (last.started_at - record.started_at).total_seconds() + last.wall_s


def _label(text: str) -> str:
    text = visible(text)
    return text if len(text) <= 24 else text[:23] + "…"


def chart(title: str, said: str, note: str, draw: Callable[["Axes"], None], *, high: float = 3.6) -> Chart:
    """A drawing on axes of its own; `said` tells in words what it shows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(8, high), layout="constrained")
        draw(figure.add_subplot())
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    slug = re.sub(r"\W+", "-", title.lower())
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{slug}-", svg)  # several drawings share a page, and so its ids
    told = escape(visible(f"{title}: {said}"))
    return Chart(title, svg.replace("<svg ", f'<svg role="img" aria-label="{told}" ', 1), note)
