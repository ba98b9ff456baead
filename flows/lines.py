"""Long lines on a narrow terminal: wrapped between words under their own beginning, so that nothing looks torn."""

import sys
import textwrap

from rich.console import Console

__all__ = ["hanging", "stdout_width"]

_NARROWEST = 24


def hanging(head: str, text: str, width: int, *, under: int | None = None) -> list[str]:
    """`head` and `text` in lines of at most `width` columns; only a word that is longer, like a path, stays whole.

    `under`: column at which the later lines begin; default: where `text` does.
    """
    indent = " " * (len(head) if under is None else under)
    return textwrap.wrap(
        text, max(_NARROWEST, width), initial_indent=head, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]  # fmt: skip


def stdout_width() -> int | None:
    """Columns of the terminal; None where stdout is none, and a line is better left whole for the next program."""
    return Console().width if sys.stdout.isatty() else None
