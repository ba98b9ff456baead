"""Finds the run that is to go on, and refuses one that is not the same any more."""

from pathlib import Path

from settings.inputs import Inputs
from settings.source import BadInput, on_this_machine
from settings.target import Target
from tasks.chosen import run_folder
from tasks.pure.record import Asked, RunRecord, TargetRef
from tasks.pure.resume import other_inputs
from tasks.store import read_record, records

__all__ = ["anywhere", "asked", "check_same", "run_of_flow", "target_ref", "to_resume"]


def to_resume(root: Path, name: str) -> tuple[Path, RunRecord, Asked]:
    """The run called `name`, and what was asked of it. Raises: BadInput."""
    folder = run_folder(root, name)
    record = read_record(folder)
    if record.asked is None:
        raise BadInput(folder, "", "was written by a release that could not resume: begin a new run")
    return folder, record, record.asked


def run_of_flow(root: Path, flow_run: str) -> str | None:
    """The run that a Prefect flow run began, when this is a re-run of it."""
    began = (r for r in records(root) if r.asked and r.asked.flow_run == flow_run)
    return next((str(root / r.run_id) for r in began), None)


def check_same(folder: Path, record: RunRecord, inputs: Inputs) -> None:
    """Raises: BadInput when target or ladder are not those that the run began with."""
    changed = other_inputs(record, target=target_ref(inputs.target), ladder_sha256=inputs.ladder_sha256)
    if changed:
        raise BadInput(folder, "", changed)


def asked(
    target: str, ladder: str, inputs: Inputs, *, keep: bool, ref: str | None, flow_run: str | None,
    confirm: bool = False,
) -> Asked:
    """What the record keeps of a person's words, with paths that hold from any folder."""
    return Asked(
        target=anywhere(target), ladder=anywhere(ladder), target_ref=target_ref(inputs.target), keep=keep, ref=ref,
        flow_run=flow_run, confirm=confirm,
    )  # fmt: skip


def target_ref(target: Target) -> TargetRef:
    """What makes it the same target."""
    return TargetRef(**{name: getattr(target, name) for name in TargetRef.model_fields})


def anywhere(name: str) -> str:
    """A name of a shipped file as it is, a path made absolute."""
    return str(on_this_machine(name).resolve()) if name.endswith(".toml") or "/" in name else name
