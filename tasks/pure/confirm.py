"""A/B/A: whether a regression comes of the code, of the host or of chance, told from two further runs."""

from collections.abc import Sequence

from tasks.pure.build import moved
from tasks.pure.comparison import Confirmation, Finding
from tasks.pure.record import RunRecord, Source
from tasks.pure.regression import figures_of

__all__ = ["UNDER_WAY", "confirmation", "unconfirmable"]

UNDER_WAY = "the runs that were to confirm it were under way when this was written"


def unconfirmable(record: RunRecord, good: RunRecord | None) -> str | None:
    """Why no further run could tell more; None where it can."""
    if good is None or record.compared is None:
        return "there is no earlier good run that it could be compared with"
    if record.source is None:
        return "its build was not installed by a run, so it cannot be had again"
    if good.source is None:
        return f"the build of {good.run_id} was not installed by a run, so it cannot be had again"
    return None


def confirmation(record: RunRecord, good: RunRecord, a: RunRecord | None, b: RunRecord | None) -> Confirmation | None:
    """What the further runs say: `a` of the last good build, `b` of the one of `record`. None: the next is needed.

    Each is compared with the same nights as `record` was. The failure has come again where the same finding stands in
    both comparisons; a rung has to break in the same way.
    """
    found = _judge(record, good, a, b)
    if found is None:
        return None
    verdict, why = found
    runs = {"A": a.run_id} if a else {}
    freezes = (run.source.freeze if run.source else () for run in (good, record))
    return Confirmation.model_validate(
        {
            "verdict": verdict, "why": why, "runs": runs | ({"B": b.run_id} if b else {}),
            "good": _named(good.source), "bad": _named(record.source), "moved": moved(*freezes),
        }
    )  # fmt: skip


def _judge(record: RunRecord, good: RunRecord, a: RunRecord | None, b: RunRecord | None) -> tuple[str, str] | None:
    if a is None:
        return None
    if why := _undecided(a):
        return "unclear", f"the last good build, run again, {why}"
    same, otherwise, other = _again(record, a)
    if same or otherwise:
        return "host", f"the last good build is worse now, too: {_said([*same, *otherwise])}"
    if other:
        return "unclear", f"the last good build fails now, but otherwise: {_said(other)}"
    if missing := _unmeasured(record, a):
        return "unclear", f"the last good build, run again, has no {missing}"
    if b is None:
        return None
    if why := _undecided(b):
        return "unclear", f"the last good build is good again; this one, run again, {why}"
    same, otherwise, other = _again(record, b)
    if same and _named(good.source) == _named(record.source):
        return "unclear", f"the same build was good again and then worse again: {_said(same)}"
    if same:
        return "code", f"the last good build is good again, and this one is worse again: {_said(same)}"
    if otherwise or other:
        return "unclear", f"the last good build is good again; this one fails otherwise: {_said([*otherwise, *other])}"
    if missing := _unmeasured(record, b):
        return "unclear", f"the last good build is good again; this one, run again, has no {missing}"
    return "noise", "the last good build is good again, and so was this one on its second try"


def _undecided(run: RunRecord) -> str | None:
    """Why nothing can be said of this run's build."""
    if run.obstacle:
        return f"met the host, not the code: {run.obstacle}"
    if run.compared is None:
        return f"came to no decision ({run.outcome}" + (f": {run.halt.reason})" if run.halt else ")")
    if run.role == "A" and run.source and run.source.diagnosis:
        return f"could not be installed ({run.source.diagnosis.means})"
    return None


def _again(record: RunRecord, run: RunRecord) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """What is worse in both; what is, but fails in another way; and, where there is neither, what else broke."""
    assert record.compared is not None
    assert run.compared is not None
    asked = {f.key: f for f in record.compared.worse}
    # That nothing serves follows from the rungs that broke; it counts where it is all there is to say.
    shared = [f for f in run.compared.worse if f.key in asked and (f.what != "outcome" or len(asked) == 1)]
    same = [f for f in shared if isinstance(f.now, float) or f.now == asked[f.key].now]
    otherwise = [f for f in shared if f not in same]
    return same, otherwise, [] if shared else [f for f in run.compared.worse if f.kind == "branch"]


def _unmeasured(record: RunRecord, run: RunRecord) -> str:
    """The figures that are worse and that this run did not measure: their absence is no recovery."""
    worse = record.compared.worse if record.compared else ()
    return ", ".join(f.what for f in worse if f.kind == "figure" and f.what not in figures_of(run))


def _said(found: Sequence[Finding]) -> str:
    return "; ".join(f.said for f in found[:3])


def _named(source: Source | None) -> str | None:
    return source.commit or source.ref if source else None
