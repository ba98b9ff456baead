"""Files that a person asks a command to write: a place that cannot be written is their slip, told in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from settings.source import BadInput

__all__ = ["written"]


@contextmanager
def written(path: Path, option: str) -> Iterator[None]:
    """Around the writing of `path`. Raises: BadInput in place of OSError."""
    try:
        yield
    except OSError as e:
        raise BadInput(path, option, f"cannot be written: {e.strerror or e}") from e
