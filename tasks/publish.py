"""Copies a run that has ended to a shared place, so that the history of several workers is one."""

from pathlib import Path

__all__ = ["publish"]


def publish(folder: Path, url: str) -> int:
    """Copy a run's folder to `<url>/<run id>/`, the record last: who sees one finds all that it names. Files copied.

    `url`: a folder, or what fsspec knows. Raises: OSError, ValueError, ImportError (a protocol without its package).
    """
    import fsspec

    system, root = fsspec.core.url_to_fs(url)
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    files.sort(key=lambda p: p.name == "record.json")
    for path in files:
        there = f"{root.rstrip('/')}/{folder.name}/{path.relative_to(folder).as_posix()}"
        system.makedirs(there.rpartition("/")[0], exist_ok=True)
        system.put_file(str(path), there)
    return len(files)
