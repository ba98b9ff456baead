"""The decision tree as a document: SVG for a browser, plain text for a page that shows nothing else."""

import re
from io import StringIO

from rich.console import Console

from tasks.pure.draw import Node, draw

__all__ = ["draw_svg", "draw_text"]

_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # rich links to a font on the network


def draw_svg(node: Node, *, width: int = 160) -> str:
    """`node` as an SVG document that loads nothing from elsewhere; `width` in characters."""
    console = Console(record=True, file=StringIO(), width=width)
    console.print(draw(node))
    return _FONTS.sub("", console.export_svg(title=node.text))


def draw_text(node: Node, *, width: int = 110) -> str:
    """`node` as lines of text."""
    console = Console(record=True, file=StringIO(), width=width)
    console.print(draw(node))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())
