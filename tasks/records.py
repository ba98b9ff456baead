"""The folder of all runs, here or behind any URL that fsspec knows: every record that can be read, and which cannot."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from settings.source import BadInput
from tasks.pure.record import RunRecord

__all__ = ["Records", "read_records"]


@dataclass(frozen=True, slots=True)
class Records:
    """`runs` from the oldest to the newest; `damaged`: one sentence for each file that is no record."""

    runs: tuple[RunRecord, ...]
    damaged: tuple[str, ...]


def read_records(root: str, *, only: Sequence[str] = ()) -> Records:
    """All records under `root` (a folder or a URL), or those of the runs named.

    A record that is damaged, or of a schema that this program does not know, is reported and left out.
    Raises: BadInput when the root itself cannot be read.
    """
    import fsspec

    runs: list[RunRecord] = []
    damaged: list[str] = []
    try:
        system, path = fsspec.core.url_to_fs(root)
        base = path.rstrip("/")
        files = [f"{base}/{run}/record.json" for run in only] or sorted(system.glob(f"{base}/*/record.json"))
        found = system.cat(files, on_error="return") if files else {}
    except (OSError, ValueError, ImportError) as e:
        raise BadInput(root, "", f"cannot be read: {e}") from e
    for file in files:
        content = found.get(file, b"")
        if isinstance(content, Exception):
            damaged.append(f"{file}: cannot be read: {type(content).__name__}")
            continue
        try:
            runs.append(RunRecord.model_validate_json(content))
        except ValidationError as e:
            first = e.errors(include_url=False, include_input=False)[0]
            damaged.append(f"{file}: {'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}")
    return Records(tuple(sorted(runs, key=lambda r: r.started_at)), tuple(damaged))
