"""Copies a run that has ended to a shared place, so that the history of several workers is one."""

from pathlib import Path
from threading import Thread

from tasks.deadline import Deadline

__all__ = ["publish"]


def publish(folder: Path, url: str, *, deadline: Deadline) -> int:
    """Copy a run's folder to `<url>/<run id>/`, the record last: who sees one finds all that it names. Files copied.

    `url`: a folder, or what fsspec knows. Raises: OSError (TimeoutError: a shared place that does not answer is left to
    itself), ValueError, ImportError (a protocol without its package).
    """
    copied: list[int | Exception] = []

    def copy() -> None:
        try:
            copied.append(_copy(folder, url))
        except Exception as e:  # noqa: BLE001 - it is raised below, where somebody hears it
            copied.append(e)

    thread = Thread(target=copy, name="publish", daemon=True)
    thread.start()
    thread.join(deadline.left_s)
    if not copied:
        raise TimeoutError("the copy had not ended in time")
    if isinstance(copied[0], Exception):
        raise copied[0]
    return copied[0]


def _copy(folder: Path, url: str) -> int:
    import fsspec

    system, root = fsspec.core.url_to_fs(url)
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    files.sort(key=lambda p: p.name == "record.json")
    for path in files:
        there = f"{root.rstrip('/')}/{folder.name}/{path.relative_to(folder).as_posix()}"
        system.makedirs(there.rpartition("/")[0], exist_ok=True)
        system.put_file(str(path), there)
    return len(files)
