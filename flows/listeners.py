"""Who else hears of a run in this process: the command line's live display. Empty under a worker."""

from collections.abc import Callable
from contextvars import ContextVar

from tasks.runlog import Listener
from tasks.session import Progress

__all__ = ["LISTENERS", "SHOW"]


def _shown_to_nobody(_: Progress) -> None:
    return None


LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
SHOW: ContextVar[Callable[[Progress], None]] = ContextVar("show", default=_shown_to_nobody)
