"""The run as a page of Markdown, from the record alone. Text from logs and replies is shown, never interpreted."""

import shlex
from collections.abc import Iterable
from textwrap import wrap

from settings.ladder import ArgValue
from settings.words import AttemptOutcome, RunOutcome
from tasks.pure.decode_page import DECODE_COLUMNS, decode_rows, figures_note
from tasks.pure.load_page import LOAD_COLUMNS, load_notes, load_rows
from tasks.pure.names import run_state, state_name
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.visible import visible

__all__ = [
    "BRANCH_COLUMNS",
    "WIDTH",
    "actual_backend",
    "attempt_page",
    "block",
    "branch_rows",
    "command",
    "comparison_lines",
    "headline",
    "host_rows",
    "inline",
    "report",
]

BRANCH_COLUMNS = ("attempt", "rung", "actual backend", "asked", "outcome", "reason", "move", "seconds")


WIDTH = 72  # columns of code that Prefect's pages show without scrolling sideways, at 1300 pixels


def headline(record: RunRecord) -> str:
    """One sentence, e.g. "Serving on bf16-kv after NaN on auto, flashmla-sparse, trtllm; 41 min"."""
    state = run_state(record.outcome)
    failed: dict[str, list[str]] = {}
    for a in record.attempts:
        if a.outcome is AttemptOutcome.FAILED:
            failed.setdefault(state_name(a.outcome, a.diagnosis), []).append(a.rung)
    text = state
    winner = next((a for a in record.attempts if a.n == record.winner), None)
    if winner:
        text += f" on {_rung(winner)}" + (f" ({b})" if (b := actual_backend(winner)) else "")
    if failed:
        text += " after " + ", ".join(f"{name} on {', '.join(dict.fromkeys(rungs))}" for name, rungs in failed.items())
    if record.outcome in (RunOutcome.SERVING_UNMEASURED, RunOutcome.SERVING_BELOW_SLO):
        unmeasured = record.outcome is RunOutcome.SERVING_UNMEASURED
        text += ", load test without a valid figure" if unmeasured else ", below SLO"
    if record.ended_at:
        text += f"; {_span((record.ended_at - record.started_at).total_seconds())}"
    return text


def actual_backend(attempt: Attempt) -> str:
    """What really ran, as the server said, e.g. "flashmla_kv"; prefill/decode where the two differ."""
    prefill, decode = (attempt.effective.get(f"sparse-{side}") for side in ("prefill", "decode"))
    if prefill and decode and prefill != decode:
        return f"{prefill}/{decode}"
    return str(decode or prefill or attempt.effective.get("attention") or "")


def branch_rows(record: RunRecord) -> list[dict[str, str]]:
    """The table "branch taken", a row an attempt, keyed by BRANCH_COLUMNS."""
    rows: list[dict[str, str]] = []
    before: dict[str, ArgValue] = {}
    for a in record.attempts:
        differs = {k: v for k, v in a.asked.items() if before.get(k) != v} | {
            k: "(gone)" for k in before if k not in a.asked
        }
        move = f"{a.move.move} {a.move.to or ''}".strip() if a.move else ""
        d = a.diagnosis
        reason = f"{d.kind}/{d.component} in {a.failed_stage or d.phase}" if d else ""
        cells = (
            str(a.n), _rung(a), actual_backend(a), ", ".join(f"{k}={v}" for k, v in differs.items()),
            state_name(a.outcome, a.diagnosis), reason, move, f"{_wall_s(a):.1f}",
        )  # fmt: skip
        rows.append(dict(zip(BRANCH_COLUMNS, cells, strict=True)))
        before = dict(a.asked) or before
    return rows


def _rung(a: Attempt) -> str:
    return f"{a.rung} + {a.variation}" if a.variation else a.rung


def report(record: RunRecord) -> str:
    """The whole page."""
    lines = [f"# {inline(headline(record))}", ""]
    lines += [
        f"Run {inline(record.run_id)} on {inline(record.target)}, ladder {inline(record.ladder.name)} "
        f"({inline(record.ladder.sha256[:12])}), {record.build.engine} "
        f"{inline(record.build.version or 'of unknown version')}.",
    ]
    if record.halt:
        lines += ["", f"Ended by {record.halt.by}: {inline(record.halt.reason)}"]
    lines += ["", "## Branch taken", "", *_table(branch_rows(record), BRANCH_COLUMNS)]
    if compared := comparison_lines(record):
        lines += ["", "## Beside the good runs before", "", *(f"- {inline(line)}" for line in compared)]
    for attempt in record.attempts:
        lines += ["", *_attempt(attempt)]
    lines += ["", "## Host", ""]
    lines += [f"- {key}: {inline(value)}" for key, value in host_rows(record)]
    return "\n".join(lines) + "\n"


def comparison_lines(record: RunRecord) -> list[str]:
    """What is worse and better than before, a sentence each, and what could not be judged."""
    found, confirmed = record.compared, record.confirmed
    if found is None:
        return []
    lines = [f"{f.direction}: {f.said}" for f in sorted(found.findings, key=lambda f: f.direction, reverse=True)]
    if confirmed:
        runs = ", ".join(f"{role}: {run}" for role, run in confirmed.runs.items())
        lines.append(f"A/B/A says {confirmed.verdict}: {confirmed.why}" + (f" ({runs})" if runs else ""))
        lines += [f"moved between the two builds: {name}" for name in confirmed.moved]
    lines += [f"not judged: {said}" for said in found.not_judged]
    return lines or [f"as in {found.last_good}, and within the band of {found.nights} good runs"]


def attempt_page(attempt: Attempt) -> str:
    """One attempt's part of the page."""
    return "\n".join(_attempt(attempt, WIDTH)) + "\n"


def _attempt(a: Attempt, width: int | None = None) -> Iterable[str]:
    yield f"## {a.n}. {inline(a.rung)}: {state_name(a.outcome, a.diagnosis)}"
    yield ""
    if a.expected:
        yield f"Expected to fail: {inline(a.expected)}"
        yield ""
    d = a.diagnosis
    if d:
        yield f"**{d.kind}** ({d.component}, {d.phase}): {inline(d.means)}"
        yield ""
        if d.evidence.around:
            marked = (f"{'>' if n == d.evidence.line else ' '}{n:>7}  {text}" for n, text in d.evidence.around)
            yield from (f"The log around line {d.evidence.line}:", "", *block("\n".join(marked), width), "")
        elif d.evidence.text:
            where = f"line {d.evidence.line}" + (f", {inline(d.evidence.rank)}" if d.evidence.rank else "")
            yield from (f"{where if d.evidence.line else 'evidence'}:", "", *block(d.evidence.text, width), "")
        if d.try_:
            yield from (f"To try: {inline(d.try_)}", "")
        if d.also_seen:
            yield from ("Also seen: " + "; ".join(map(inline, d.also_seen)), "")
    if a.move:
        then = f"Then: {a.move.move} {inline(a.move.to or '')} by {inline(a.move.edge)} ({inline(a.move.why)})"
        yield from (then, "")
    if a.argv:
        yield from (*block(command(a.argv), width), "")
    if a.effective:
        names = dict.fromkeys((*a.asked, *a.effective))
        settings = [
            {"setting": k, "asked": str(a.asked.get(k, "")), "in effect": str(a.effective.get(k, ""))} for k in names
        ]
        yield from (*_table(settings, ("setting", "asked", "in effect")), "")
    if a.phases:
        yield from ("Engine phases: " + ", ".join(f"{k} {v:.1f} s" for k, v in a.phases.items()), "")
    if a.stages:
        stages = [
            {"stage": s.stage, "outcome": s.outcome, "seconds": f"{s.wall_s:.1f}", "reason": s.reason} for s in a.stages
        ]
        yield from _table(stages, ("stage", "outcome", "seconds", "reason"))
    if a.decode:
        yield ""
        yield from _table(decode_rows(a.decode), DECODE_COLUMNS)
        for figures in a.suites:
            yield from ("", inline(figures_note(figures)))
        if a.replies:
            yield from ("", f"Every call: `{a.replies.path}`")
    if a.accuracy:
        yield from ("", f"Accuracy on {inline(a.accuracy.benchmark)}: {inline(a.accuracy.said)}.")
    if a.load:
        yield ""
        yield from _table(load_rows(a.load), LOAD_COLUMNS)
        for note in load_notes(a.load, a.bench):
            yield from ("", inline(note))


def host_rows(record: RunRecord) -> Iterable[tuple[str, str]]:
    """What the probe found of the host, as far as it is known."""
    h = record.host
    yield "host", h.hostname or h.name
    for key in ("os", "kernel", "python", "driver"):
        if getattr(h, key):
            yield key, getattr(h, key)
    if h.gpus:
        yield "GPUs", f"{len(h.gpus)} x {h.gpus[0].get('name')} (SM{h.gpus[0].get('sm')})"
    for package, version in h.versions.items():
        if version:
            yield package, version
    for problem in h.problems:
        yield "not known", problem


def _table(rows: list[dict[str, str]], columns: tuple[str, ...]) -> Iterable[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(inline(str(row[c])) for c in columns) + " |"


def inline(text: str) -> str:
    """Text of others in a line of Markdown: one line, no markup, no HTML."""
    return " ".join(visible(text).translate(_HARMLESS).split())


_HARMLESS = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "'", **{mark: "\\" + mark for mark in "\\|*_[]"}}
)


def block(text: str, width: int | None = None) -> Iterable[str]:
    """Text of others as indented code: no fence that it could close. A line longer than `width` goes on below."""
    lines = visible(text).splitlines() or [""]
    if width is not None:
        lines = [part for line in lines for part in _folded(line, width)]
    return [f"    {line}" for line in lines]


def _folded(line: str, width: int) -> list[str]:
    text = line.lstrip()
    begins = line[: min(len(line) - len(text), width // 2)]
    return wrap(text, width, initial_indent=begins, subsequent_indent=f"{begins}  ", break_on_hyphens=False) or [""]


def command(argv: tuple[str, ...]) -> str:
    """A command as a shell takes it, a line an option with its values beside it."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(map(shlex.join, lines))


def _wall_s(a: Attempt) -> float:
    return sum(s.wall_s for s in a.stages)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
