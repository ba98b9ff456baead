"""Files that a command writes: a place that cannot be written is told in one sentence, with what to do about it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from settings.source import BadInput
from tasks.store import read_record

__all__ = ["NO_ROOM", "no_room", "written"]

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


@contextmanager
def written(path: Path, option: str) -> Iterator[None]:
    """Around the writing of `path`. Raises: BadInput in place of OSError."""
    try:
        yield
    except OSError as e:
        raise BadInput(path, option, f"cannot be written: {e.strerror or e}") from e


def no_room(error: OSError, folder: Path) -> OSError:
    """The error of a run whose folder can no longer be written, with what of it is stored and how it goes on."""
    try:
        count = len(read_record(folder).attempts)
        stored = f"the record with {count} attempt{'s' * (count != 1)} was stored before and is whole"
        then = f"make room there, then go on with `bringup run --resume {folder}`"
    except BadInput:
        stored, then = "nothing of the run is stored", "make room there, or name another folder with --runs"
    return OSError(error.errno, f"{error.strerror}; {stored}, and its server is ended; {then}", str(folder))
