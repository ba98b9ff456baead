"""Folders of runs, here or behind any URL that fsspec knows: every record that can be read, and which cannot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from settings.source import BadInput
from tasks.pure.record import RunRecord

__all__ = ["Records", "read_records", "run_ids"]


@dataclass(frozen=True, slots=True)
class Records:
    """`runs` from the oldest to the newest; `damaged`: one sentence for each file that is no record."""

    runs: tuple[RunRecord, ...]
    damaged: tuple[str, ...]


def read_records(*roots: str, only: Sequence[str] = ()) -> Records:
    """All records under these folders or URLs, or those of the runs named. A run that lies in two of them counts once.

    A record that is damaged, or of a schema that this program does not know, is reported and left out.
    Raises: BadInput when a root itself cannot be read.
    """
    runs: dict[str, RunRecord] = {}
    damaged: list[str] = []
    for file, content in _contents(roots, only):
        if isinstance(content, Exception):
            damaged.append(f"{file}: cannot be read: {type(content).__name__}")
            continue
        try:
            run = RunRecord.model_validate_json(content)
            runs.setdefault(run.run_id, run)
        except ValidationError as e:
            first = e.errors(include_url=False, include_input=False)[0]
            damaged.append(f"{file}: {'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}")
    return Records(tuple(sorted(runs.values(), key=lambda r: r.started_at)), tuple(damaged))


def run_ids(*roots: str) -> list[str]:
    """The names of all run folders, in their order. Raises: BadInput."""
    return sorted({file.split("/")[-2] for root in roots for _, files in [_files(root)] for file in files})


def _contents(roots: Sequence[str], only: Sequence[str]) -> Iterator[tuple[str, bytes | Exception]]:
    for root in roots:
        system, files = _files(root)
        if only:
            files = [file for file in files if file.split("/")[-2] in only]
        try:
            found = system.cat(files, on_error="return") if files else {}
        except (OSError, ValueError) as e:
            raise BadInput(root, "", f"cannot be read: {e}") from e
        yield from ((file, found.get(file, b"")) for file in files)


def _files(root: str) -> tuple[Any, list[str]]:
    """The file system of a root, and its records."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(root)
        return system, sorted(system.glob(f"{path.rstrip('/')}/*/record.json"))
    except (OSError, ValueError, ImportError) as e:
        raise BadInput(root, "", f"cannot be read: {e}") from e
