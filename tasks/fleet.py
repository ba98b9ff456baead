"""Which hosts a fleet has: the files that a person's words mean, and who of them cannot even begin."""

import glob
from collections.abc import Sequence
from pathlib import Path

from settings.inputs import load_inputs
from settings.source import BadInput
from settings.target import Target
from settings.words import ExitCode
from tasks.pure.fleet import FleetRow
from tasks.resume import anywhere

__all__ = ["sorted_out", "target_files"]


def target_files(targets: Sequence[str]) -> list[str]:
    """Folders and patterns as the files that they hold; each file once. Raises: BadInput when there is none."""
    found: list[str] = []
    for word in targets:
        pattern = f"{glob.escape(word)}/*.toml" if Path(word).is_dir() else word
        hits = sorted(glob.glob(pattern)) if glob.has_magic(pattern) or pattern != word else [word]
        if not hits:
            raise BadInput("fleet", word, "holds no target file")
        found += map(anywhere, hits)
    if not found:
        raise BadInput("fleet", "targets", "names no host")
    return list(dict.fromkeys(found))


def sorted_out(targets: Sequence[str], ladder: str) -> tuple[dict[str, str], list[FleetRow]]:
    """By the host's name the word for its target; and the rows of those that cannot even begin."""
    hosts: dict[str, str] = {}
    places: dict[tuple[object, ...], str] = {}
    refused: list[FleetRow] = []
    for word in targets:
        try:
            target = load_inputs(word, ladder).target
        except BadInput as e:
            name = Path(word).stem
            refused.append(FleetRow(target=name, state="Bad input", exit=ExitCode.BAD_INPUT, headline=str(e)))
            continue
        first = places.setdefault(_place(target), word)
        if first is word:
            hosts[word if target.name in hosts else target.name] = word
        else:
            why = f"the same host and state folder as {first}; not begun"
            refused.append(FleetRow(target=target.name, state="Host busy", exit=ExitCode.HOST_BUSY, headline=why))
    return hosts, refused


def _place(target: Target) -> tuple[object, ...]:
    """What only one run can have at a time."""
    return target.host, target.port, target.user, target.state_dir
