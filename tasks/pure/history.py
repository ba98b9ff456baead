"""Runs beside each other: the history of a target, a row a run, and what differs between two of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from tasks.pure.names import run_state, state_name
from tasks.pure.record import Attempt, BenchPoint, RunRecord
from tasks.pure.report import actual_backend

__all__ = ["FIGURES", "compare", "history", "winner_of"]

FIGURES = ("output_tokens_per_s", "ttft_p99_ms", "tpot_median_ms")


def history(
    runs: Iterable[RunRecord], *, target: str | None = None, ladder: str | None = None, since: datetime | None = None
) -> list[dict[str, Any]]:
    """A row a run, in the order given. Every attempt stands in it, failed and skipped ones too."""
    return [
        _row(run)
        for run in runs
        if target in (None, run.target) and ladder in (None, run.ladder.name)
        and (since is None or run.started_at >= since)
    ]  # fmt: skip


def compare(old: RunRecord, new: RunRecord) -> list[dict[str, Any]]:
    """What differs, most telling first; for figures `change` is the relative difference."""
    told = [*_pairs(_facts(old), _facts(new)), *_pairs(_settings(old), _settings(new))]
    return [{"what": what, "old": was, "new": now, "change": None} for what, was, now in told if was != now] + [
        {"what": what, "old": was, "new": now, "change": (now - was) / was if was and now is not None else None}
        for what, was, now in _pairs(_figures(old), _figures(new))
        if was is not None or now is not None
    ]


def winner_of(run: RunRecord) -> Attempt | None:
    """The attempt that served."""
    return next((a for a in run.attempts if a.n == run.winner), None)


def _row(run: RunRecord) -> dict[str, Any]:
    won = winner_of(run)
    points = [p for p in won.bench if p.valid] if won else []
    ended = run.ended_at
    return {
        "run_id": run.run_id,
        "started_at": run.started_at.isoformat(timespec="seconds"),
        "target": run.target,
        "ladder": run.ladder.name,
        "engine": run.build.engine,
        "version": run.build.version,
        "commit": run.build.commit,
        "outcome": str(run.outcome),
        "state": run_state(run.outcome),
        "confirms": run.confirms,
        "role": run.role,
        "rung": won.rung if won else None,
        "backend": actual_backend(won) if won else None,
        "wall_s": (ended - run.started_at).total_seconds() if ended else None,
        "attempts": [_attempt(a) for a in run.attempts],
        **{name: _median(points, name) for name in FIGURES},
    }


def _attempt(a: Attempt) -> dict[str, Any]:
    found = a.diagnosis
    return {
        "n": a.n, "rung": a.rung, "outcome": str(a.outcome), "state": state_name(a.outcome, found),
        "kind": found.kind if found else None, "component": str(found.component) if found else None,
        "stage": str(a.failed_stage) if a.failed_stage else None,
    }  # fmt: skip


def _median(points: Sequence[BenchPoint], name: str) -> float | None:
    values = [v for p in points if (v := getattr(p, name)) is not None]
    return median(values) if values else None


def _facts(run: RunRecord) -> dict[str, Any]:
    row = _row(run)
    return {
        "outcome": row["outcome"],
        "rung": row["rung"],
        "backend": row["backend"],
        "path": " → ".join(f"{a['rung']}: {a['state']}" for a in row["attempts"]),
        "target": run.target,
        "ladder": f"{run.ladder.name} {run.ladder.sha256[:12]}",
        **{f"build {key}": value for key, value in run.build.model_dump().items()},
        "driver": run.host.driver,
        "GPUs": ", ".join(f"{g.get('name')} (SM{g.get('sm')})" for g in run.host.gpus),
        **{f"package {name}": version for name, version in run.host.versions.items()},
        **{f"{role} suite": f"{suite.name} {suite.sha256[:12]}" for role, suite in run.suites.items()},
    }


def _settings(run: RunRecord) -> dict[str, Any]:
    won = winner_of(run)
    return {f"effective {name}": value for name, value in won.effective.items()} if won else {}


def _figures(run: RunRecord) -> dict[str, float | None]:
    won = winner_of(run)
    profiles = dict.fromkeys(p.profile for p in won.bench) if won else {}
    return {
        f"{profile}: {name}": _median([p for p in won.bench if p.valid and p.profile == profile], name)
        for profile in profiles for name in FIGURES if won
    }  # fmt: skip


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*old, *new)):
        yield key, old.get(key), new.get(key)
