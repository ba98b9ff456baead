"""Finds the run that a person means: by its id, a part of it, `latest`, a folder, or by saying nothing."""

from dataclasses import dataclass
from pathlib import Path

from settings.source import BadInput, nearest, on_this_machine
from settings.words import RunOutcome
from tasks.pure.record import RunRecord
from tasks.store import newest_run, read_record

__all__ = ["LATEST", "Shown", "named", "run_folder", "run_to_show"]

LATEST = "latest"
_LISTED = 4  # ids in a sentence


@dataclass(frozen=True, slots=True)
class Shown:
    """The run that is shown when nobody named one; `newer`: a sentence for each newer run that was passed over."""

    folder: Path
    newer: tuple[str, ...] = ()


def run_folder(root: Path, name: str) -> Path:
    """The folder of a run. Raises: BadInput that names the nearest, or those between which it cannot decide.

    An id is looked for in `root`, a path from where we stand: `../..` is no way out of the runs.
    """
    if "/" in name or name in (".", ".."):
        folder = on_this_machine(name)
        if (folder / "record.json").is_file():
            return folder
        raise BadInput(folder, "", "is no run's folder: it holds no record.json")
    for folder in (root / name, Path(name)):
        if (folder / "record.json").is_file():
            return folder
    if name == LATEST:
        return newest_run(root)
    return root / named(name, [p.parent.name for p in sorted(root.glob("*/record.json"))], where=root)


def named(name: str, ids: list[str], *, where: str | Path) -> str:
    """The id that `name` is, or that alone begins or ends with it. Raises: BadInput."""
    if name in ids:
        return name
    if name == LATEST and ids:
        return max(ids)
    fit = [id for id in ids if name and (id.startswith(name) or id.endswith(name))]
    if len(fit) == 1:
        return fit[0]
    if fit:
        told = ", ".join(fit[-_LISTED:]) + (", …" if len(fit) > _LISTED else "")
        raise BadInput(where, name, f"is part of {len(fit)} runs: {told}")
    raise BadInput(where, name, "no such run", nearest(name, ids))


def run_to_show(root: Path) -> Shown:
    """The newest run that has ended and tried something; where there is none, the newest. Raises: BadInput."""
    newest, passed_over = newest_run(root), list[str]()
    for path in sorted(root.glob("*/record.json"), reverse=True):
        try:
            record = read_record(path)
        except BadInput as e:
            passed_over.append(f"left out: {e}")
            continue
        if record.halt is not None and record.attempts and record.confirms is None:
            return Shown(path.parent, tuple(passed_over))
        passed_over.append(f"newer: {record.run_id} {_why_not(record)}")
    return Shown(newest)


def _why_not(record: RunRecord) -> str:
    if record.halt is None:
        return "is still going on, or was killed"
    if record.confirms is not None:
        return f"was made for {record.confirms}"
    if record.outcome is RunOutcome.HOST_BUSY or record.halt.by == "preflight":
        return f"was refused: {record.halt.reason}"
    return f"tried nothing: {record.halt.reason}"
