"""What a bisect came to, as a page of Markdown that can be filed as it is: commit, failure, and how it was found."""

import shlex
from collections.abc import Iterator, Mapping

from tasks.pure.bisect import Bisection, Suspects, next_commit
from tasks.pure.build import moved
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.report import block, host_rows, inline

__all__ = ["bisect_report", "verdict_of"]


def verdict_of(found: Bisection) -> str:
    """One sentence: the first bad commit, the few that it must be among, or how many are left."""
    left = next_commit([c.sha for c in found.commits], found.answers)
    subjects = {c.sha: c.subject for c in found.commits}
    if isinstance(left, str):
        return f"not found yet: {len(found.probes)} of the {len(found.commits)} commits were run"
    if len(left.commits) > 1:
        return f"one of {len(left.commits)} commits: those between the last good and the first bad one cannot be judged"
    (commit,) = left.commits
    return f"{commit[:12]} is the first bad commit: {subjects[commit]}"


def bisect_report(found: Bisection, bad: RunRecord, runs: Mapping[str, RunRecord]) -> str:
    """The page. `runs`: the records of the probes and of the last good run, by run id."""
    return "\n".join(_lines(found, bad, runs)) + "\n"


def _lines(found: Bisection, bad: RunRecord, runs: Mapping[str, RunRecord]) -> Iterator[str]:
    asked = found.question
    yield from (f"# {inline(asked.said)}", "", f"{inline(verdict_of(found))}.", "")
    left = next_commit([c.sha for c in found.commits], found.answers)
    subjects = {c.sha: c.subject for c in found.commits}
    if isinstance(left, Suspects) and len(left.commits) > 1:
        yield from (*(f"- {sha[:12]} {inline(subjects[sha])}" for sha in left.commits), "")
    shown = _shown(found, bad, runs)
    attempt = _attempt(shown, asked.rung)
    if attempt:
        yield from ("## Command", "", *block(shlex.join(attempt.argv)), "")
        if attempt.env:
            yield from (*block("\n".join(f"{name}={value}" for name, value in attempt.env.items())), "")
        yield from _evidence(attempt)
    yield from ("## Versions", "", *_versions(found, shown, runs), "")
    yield from ("## What was run", "")
    yield f"Of each commit the rung '{inline(asked.rung)}', up to {asked.until}; {len(found.probes)} runs for "
    yield f"{len(found.commits)} commits by first parents, from {found.good[:12]} (good: {inline(found.good_run)}) to "
    yield f"{found.bad[:12]} (bad: {inline(found.bad_run)})."
    yield from ("", "| commit | subject | answer | why | run |", "|---|---|---|---|---|")
    for probe in found.probes:
        cells = (probe.commit[:12], subjects.get(probe.commit, ""), probe.answer, probe.why, probe.run)
        yield "| " + " | ".join(map(inline, cells)) + " |"
    if not found.probes:
        yield "| nothing had to be run | | | | |"


def _shown(found: Bisection, bad: RunRecord, runs: Mapping[str, RunRecord]) -> RunRecord:
    """The run whose failure is shown: that of the oldest commit known to be bad."""
    order = {c.sha: n for n, c in enumerate(found.commits)}
    worse = [p for p in found.probes if p.answer == "bad" and p.run in runs]
    return runs[min(worse, key=lambda p: order[p.commit]).run] if worse else bad


def _attempt(run: RunRecord, rung: str) -> Attempt | None:
    return next((a for a in reversed(run.attempts) if a.rung == rung and a.variation is None), None)


def _evidence(attempt: Attempt) -> Iterator[str]:
    d = attempt.diagnosis
    if d is None:
        return
    yield from ("## Failure", "", f"{d.kind} ({d.component}) in {d.stage or d.phase}: {inline(d.means)}", "")
    if d.evidence.around:
        marked = (f"{'>' if n == d.evidence.line else ' '}{n:>7}  {text}" for n, text in d.evidence.around)
        yield from (f"The server's log around line {d.evidence.line}:", "", *block("\n".join(marked)), "")
    elif d.evidence.text:
        yield from (*block(d.evidence.text), "")
    for reply in attempt.decode:  # a silent failure stands in no log
        if reply.verdict not in ("ok", "not_run"):
            yield from (f"- {inline(reply.id)}: {reply.verdict}: {inline(reply.why)}", *block(reply.reply))
    yield ""


def _versions(found: Bisection, shown: RunRecord, runs: Mapping[str, RunRecord]) -> Iterator[str]:
    yield f"- {shown.build.engine}: {inline(shown.build.version or 'unknown')}, commit {_commit(shown) or 'unknown'}"
    yield from (f"- {name}: {inline(value)}" for name, value in host_rows(shown))
    good = [p.run for p in found.probes if p.answer == "good" and p.run in runs] or [found.good_run]
    order = {c.sha: n for n, c in enumerate(found.commits)}
    newest = max((runs[r] for r in good if r in runs), key=lambda r: order.get(_commit(r) or "", -1), default=None)
    if newest is None or newest.source is None or shown.source is None:
        return
    changed = moved(newest.source.freeze, shown.source.freeze)
    named = inline((_commit(newest) or newest.run_id)[:12])
    yield f"- packages that differ from the newest good build ({named}): {inline(', '.join(changed)) or 'none'}"


def _commit(run: RunRecord) -> str | None:
    return run.build.commit or (run.source.commit if run.source else None)
