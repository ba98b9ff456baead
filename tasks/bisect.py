"""What a bisect rests on: its two runs, the question that they raise, the commits between, and its state on disk."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from settings.inputs import Inputs
from settings.source import BadInput
from tasks.chosen import run_folder
from tasks.commits import commits_between
from tasks.connect import connect
from tasks.deadline import Deadline
from tasks.pure.bisect import Bisection, question
from tasks.pure.build import DECIDED, SERVING
from tasks.pure.record import RunRecord
from tasks.pure.regression import compare_with_history
from tasks.repeat import recipe_of
from tasks.resume import check_same
from tasks.store import read_record, records

__all__ = ["STATE", "bisection", "folder_name", "run_of_commit", "runs_by_id", "to_bisect"]

STATE = "bisect.json"
_CLONE_S = 1800.0


def to_bisect(root: Path, run: str, good: str | None) -> tuple[RunRecord, RunRecord]:
    """The bad run and the good one: the one named, or else the last good one, where A/B/A says that the code differs.

    Raises: BadInput.
    """
    folder = run_folder(root, run)
    bad = read_record(folder)
    if good is None:
        if bad.compared is None or bad.confirmed is None or bad.confirmed.verdict != "code":
            said = f"A/B/A says '{bad.confirmed.verdict}'" if bad.confirmed else "it was not confirmed by A/B/A"
            raise BadInput(folder, "", f"{said}, so a commit may be innocent; --good and --bad bisect all the same")
        good = bad.compared.last_good
    for record in (bad, read_record(run_folder(root, good))):
        if record.asked is None or record.source is None or record.source.commit is None:
            raise BadInput(record.run_id, "", "its build is no commit that a run installed (--ref)")
    return bad, read_record(run_folder(root, good))


def run_of_commit(root: Path, target: str, commit: str, *, served: bool) -> RunRecord:
    """The newest run of its own that had this commit, and that served (or not). Raises: BadInput."""
    for record in records(root):
        built = record.source.commit if record.source else None
        night = record.target == target and record.confirms is None and record.outcome in DECIDED
        if night and built and built.startswith(commit) and (record.outcome in SERVING or not served):
            return record
    what = "served with" if served else "had"
    raise BadInput(root, commit, f"no run on {target} {what} this commit: `bringup run --target … --ref {commit}`")


def folder_name(bad: RunRecord, good: RunRecord) -> str:
    """Where the state lies: the same two builds go on with the same search."""
    commits = (r.source.commit or "" if r.source else "" for r in (good, bad))
    return "-".join(("bisect", bad.target, bad.ladder.name, *(c[:10] for c in commits)))


def bisection(folder: Path, root: Path, inputs: Inputs, bad: RunRecord, good: RunRecord) -> Bisection:
    """The search so far, or a new one. Raises: BadInput, HostError."""
    check_same(root / bad.run_id, bad, inputs)
    if (folder / STATE).exists():
        return _stored(folder / STATE)
    compared = bad.compared
    if compared is None or _commit(root, compared.last_good) != _built(good):
        compared = compare_with_history(bad, [good], inputs.settings.bands)
    asked = question(bad, compared, inputs.ladder) if compared else "it came to no decision"
    if isinstance(asked, str):
        raise BadInput(bad.run_id, "", f"cannot be bisected: {asked}")
    with connect(inputs.target, deadline=Deadline.after(inputs.settings.call_s)) as host:
        commits = commits_between(
            host, inputs.target, recipe_of(inputs.target), _built(good), _built(bad), deadline=Deadline.after(_CLONE_S)
        )
    return Bisection(
        bad_run=bad.run_id, good_run=good.run_id, good=_built(good), bad=_built(bad), question=asked, commits=commits
    )


def runs_by_id(root: Path, names: Iterable[str]) -> dict[str, RunRecord]:
    """The records of these runs, of those that can be read."""
    found = {}
    for name in names:
        try:
            found[name] = read_record(root / name)
        except BadInput:
            continue
    return found


def _stored(path: Path) -> Bisection:
    try:
        return Bisection.model_validate_json(path.read_bytes())
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        raise BadInput(path, ".".join(map(str, first["loc"])), f"is no state of a bisect: {first['msg']}") from e


def _commit(root: Path, run: str) -> str | None:
    try:
        record = read_record(root / run)
    except BadInput:
        return None
    return record.source.commit if record.source else None


def _built(record: RunRecord) -> str:
    assert record.source is not None
    assert record.source.commit is not None
    return record.source.commit
