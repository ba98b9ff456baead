"""The path through the ladder as an SVG drawing: rungs from top to bottom, the moves beside them in their order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from settings.words import AttemptOutcome
from tasks.pure.draw import walked
from tasks.pure.names import state_name
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.visible import visible

__all__ = ["path_svg"]

_WIDE, _BOX, _HIGH, _PITCH, _TOP = 460, 400, 44, 58, 8
_LANE = 26  # pixels between two moves side by side
_INK = {"passed": "#14532d", "failed": "#7f1d1d", "aborted": "#581c87", "skipped": "#374151", "": "#4b5563"}
_FILL = {"passed": "#dcfce7", "failed": "#fee2e2", "aborted": "#f3e8ff", "skipped": "#f3f4f6", "": "#ffffff"}


@dataclass(frozen=True, slots=True)
class _Arc:
    n: int
    start: int
    end: int
    lane: int


def path_svg(record: RunRecord) -> str:
    """An `<svg>` element that needs nothing from elsewhere, with its text alternative inside."""
    ladder = walked(record)
    rungs = list(ladder.rung) if ladder else []
    rungs += [a.rung for a in record.attempts if a.rung not in rungs]
    rungs = list(dict.fromkeys(rungs))
    arcs = list(_arcs(record.attempts, rungs))
    wide = max(_WIDE, _BOX + 40 + _LANE * (1 + max((arc.lane for arc in arcs), default=0)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {_TOP + _PITCH * len(rungs)}" role="img" '
        'aria-labelledby="path-title path-desc" font-family="system-ui, sans-serif">',
        '<title id="path-title">The path through the ladder</title>',
        f'<desc id="path-desc">{_safe(_words(record))}</desc>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#1f2937"/></marker></defs>',
    ]
    for row, rung in enumerate(rungs):
        parts += _box(rung, row, [a for a in record.attempts if a.rung == rung], record.winner)
    for arc in arcs:
        parts += _arrow(arc)
    return "".join((*parts, "</svg>"))


def _arcs(attempts: Sequence[Attempt], rungs: Sequence[str]) -> Iterator[_Arc]:
    """Each step from an attempt to the next in the first lane that is free between the two rows."""
    lanes: list[set[int]] = []
    for a, b in pairwise(attempts):
        start, end = rungs.index(a.rung), rungs.index(b.rung)
        rows = set(range(min(start, end) * 2 + 1, max(start, end) * 2)) or {start * 2}
        lane = next((i for i, taken in enumerate(lanes) if not taken & rows), len(lanes))
        if lane == len(lanes):
            lanes.append(set())
        lanes[lane] |= rows
        yield _Arc(a.n, start, end, lane)


def _box(rung: str, row: int, attempts: Sequence[Attempt], winner: int | None) -> Iterator[str]:
    outcome = str(attempts[-1].outcome) if attempts else ""
    ink, y = _INK[outcome], _TOP + row * _PITCH
    won = any(a.n == winner for a in attempts)
    dashes = "" if attempts else ' stroke-dasharray="4 4"'
    said = ", ".join(f"{a.n}: {_state(a)}" for a in attempts) or ("not reached" if winner is None else "not needed")
    yield (
        f'<rect x="2" y="{y}" width="{_BOX}" height="{_HIGH}" rx="6" fill="{_FILL[outcome]}" stroke="{ink}" '
        f'stroke-width="{3 if won else 1.2}"{dashes}/>'
    )
    weight = "700" if attempts else "400"
    yield f'<text x="14" y="{y + 18}" font-size="15" font-weight="{weight}" fill="{ink}">{_safe(_cut(rung, 44))}</text>'
    mark = "✓ " if won else ""
    yield f'<text x="14" y="{y + 36}" font-size="13.5" fill="{ink}">{mark}{_safe(_cut(said, 54))}</text>'


def _arrow(arc: _Arc) -> Iterator[str]:
    x, right = _BOX + 4, _BOX + 24 + arc.lane * _LANE
    down = arc.end > arc.start
    begin = _TOP + arc.start * _PITCH + (_HIGH - 12 if down or arc.end == arc.start else 12)
    end = _TOP + arc.end * _PITCH + (12 if down or arc.end == arc.start else _HIGH - 12)
    middle = (begin + end) / 2
    yield (
        f'<path d="M{x} {begin}H{right - 6}Q{right} {begin} {right} {begin + (6 if end > begin else -6)}'
        f'V{end + (-6 if end > begin else 6)}Q{right} {end} {right - 6} {end}H{x + 2}" fill="none" '
        'stroke="#1f2937" stroke-width="1.6" marker-end="url(#tip)"/>'
    )
    right += 9 if arc.end == arc.start else 0  # a loop is too small to carry its number
    yield f'<circle cx="{right}" cy="{middle}" r="9.5" fill="#1f2937"/>'
    yield (
        f'<text x="{right}" y="{middle + 4.2}" font-size="12" text-anchor="middle" fill="#ffffff">{arc.n}</text>'
    )


def _words(record: RunRecord) -> str:
    return "; ".join(f"attempt {a.n} on {a.rung}: {_state(a)}" for a in record.attempts) or "nothing was tried"


def _state(a: Attempt) -> str:
    return state_name(a.outcome, a.diagnosis if a.outcome is not AttemptOutcome.PASSED else None)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _safe(text: str) -> str:
    return escape(visible(text))
