"""Asks, before a nightly run takes the host, whether it would only repeat the last one."""

from pathlib import Path

from settings.inputs import Inputs
from settings.recipe import Recipe, load_recipe
from settings.source import BadInput
from settings.target import Target
from tasks.connect import connect
from tasks.deadline import Deadline
from tasks.install import WantedBuild, cached_python, resolve
from tasks.probe import probe
from tasks.pure.build import last_run, unchanged
from tasks.pure.record import LadderRef, RunRecord
from tasks.resume import target_ref
from tasks.store import records

__all__ = ["recipe_of", "resolve_and_compare"]


def recipe_of(target: Target) -> Recipe:
    """How builds get onto this host. Raises: BadInput when the target does not say."""
    if target.recipe is None:
        raise BadInput(target.name, "recipe", "is not set in the target, so no build can be installed there by --ref")
    return load_recipe(target.recipe)


def resolve_and_compare(inputs: Inputs, recipe: Recipe, ref: str, root: Path) -> tuple[WantedBuild, RunRecord | None]:
    """What `ref` is now, and the earlier run that had the same build on the same host, if the last one did.

    Raises: BadInput for an unknown ref, HostError.
    """
    settings, target = inputs.settings, inputs.target
    with connect(target, deadline=Deadline.after(settings.call_s)) as host:
        wanted = resolve(host, ref, recipe)
        last = last_run(records(root), target=target.name, ladder=inputs.ladder_name)
        if last is None or last.source is None or last.source.folder != wanted.key or last.asked is None:
            return wanted, None
        python = cached_python(host, target, wanted, deadline=Deadline.after(settings.call_s))
        if python is None:
            return wanted, None
        there = target.model_copy(update={"python": python})
        found = probe(host, there, inputs.engine, deadline=Deadline.after(settings.probe_s))
    now = {
        "build": found.build, "host": found.summary(target.name),
        "ladder": LadderRef(name=inputs.ladder_name, sha256=inputs.ladder_sha256, text=inputs.ladder_text),
        "asked": last.asked.model_copy(update={"target_ref": target_ref(target)}),
    }  # fmt: skip
    return wanted, last if unchanged(last, last.model_copy(update=now)) else None
