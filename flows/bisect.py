"""Bisect: commits between a good and a bad run are built and run, as far as the question goes, until one is left."""

import hashlib
from dataclasses import replace

import tomli_w
from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.sitting import further_run, redactor_of
from settings.inputs import Inputs, load_inputs
from tasks import store
from tasks.bisect import STATE, bisection, folder_name, runs_by_id, to_bisect
from tasks.deadline import Deadline
from tasks.pure.bisect import Bisection, Probe, judge_probe, launches, narrowed, next_commit
from tasks.pure.bisect_report import bisect_report, verdict_of
from tasks.pure.record import RunRecord, Source

__all__ = ["bisect"]

_SPARE = 5  # launches beyond log2: for commits that cannot be judged


@flow(name="glm5-bisect", flow_run_name="{run}", retries=0, persist_result=False)
def bisect(
    run: str, good: str | None = None, runs: str | None = None, most: int | None = None, wall_s: float | None = None
) -> State[str]:
    """Find the first bad commit of a regressed run: each commit that is tried is built, and run up to what failed.

    The state is stored after each: the same call goes on where it was cut.

    Args:
        run: id of the run that regressed, and that A/B/A says 'code' of
        good: id of a good run to begin from, in place of the last good one; then A/B/A is not asked
        runs: folder for records and logs, as in a run
        most: launches in this sitting; default log2 of the commits, and five more
        wall_s: seconds for this sitting; default the ladder's budget
    """
    root = store.runs_root(runs)
    bad, last = to_bisect(root, run, good)
    assert bad.asked is not None
    inputs = load_inputs(bad.asked.target, bad.asked.ladder)
    at = store.RunFolder(root, folder_name(bad, last), redactor_of(inputs))
    with at.held():
        found = bisection(at.path, root, inputs, bad, last)
        _store(at, found, bad)
        most = most if most is not None else launches(len(found.commits)) + _SPARE
        left, begun = Deadline.after(wall_s or inputs.ladder.budget.wall_s), len(found.probes)
        get_run_logger().info("%s: %d commits", found.question.said, len(found.commits))
        while isinstance(commit := next_commit([c.sha for c in found.commits], found.answers), str):
            if len(found.probes) - begun >= most or left.passed:
                return Failed(name="Budget", message=f"the budget of this sitting is spent; {verdict_of(found)}")
            probed = further_run(
                bad, _narrow(inputs, bad, found, left), root, Source(ref=commit, commit=commit, folder=""), "bisect", []
            )
            answer = judge_probe(probed, found.question)
            if answer is None:
                why = probed.halt.reason if probed.halt else "it was cut"
                return Failed(name="Cut", message=f"{commit[:12]} ended '{probed.outcome}': {why}; {verdict_of(found)}")
            probe = Probe(commit=commit, answer=answer[0], run=probed.run_id, why=answer[1])
            found = found.model_copy(update={"probes": (*found.probes, probe)})
            _store(at, found, bad)
            get_run_logger().info("%s is %s: %s", commit[:12], *answer)
    name = "Found" if len(commit.commits) == 1 else "Narrowed"
    return Completed(name=name, message=verdict_of(found), data=str(at.path))


def _narrow(inputs: Inputs, bad: RunRecord, found: Bisection, left: Deadline) -> Inputs:
    """The inputs of one probe: a ladder of its own, and what is left of the sitting's time."""
    ladder = narrowed(inputs.ladder, bad, found.question)
    budget = ladder.budget.model_copy(update={"wall_s": min(ladder.budget.wall_s, left.left_s)})
    text = tomli_w.dumps(ladder.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
    return replace(
        inputs, ladder=ladder.model_copy(update={"budget": budget}), ladder_name=f"{inputs.ladder_name}-bisect",
        ladder_text=text, ladder_sha256=hashlib.sha256(text.encode()).hexdigest(),
    )  # fmt: skip


def _store(at: store.RunFolder, found: Bisection, bad: RunRecord) -> None:
    """State and report together."""
    runs = runs_by_id(at.path.parent, [found.good_run, *(p.run for p in found.probes)])
    store.replace(at.path / STATE, at.redactor.bytes((found.model_dump_json(indent=1) + "\n").encode()))
    store.replace(at.path / "report.md", at.redactor.text(bisect_report(found, bad, runs)).encode("utf-8", "replace"))
