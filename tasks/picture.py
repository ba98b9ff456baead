"""The decision tree as an SVG document, for a browser and the report."""

import re
from io import StringIO

from rich.console import Console

from tasks.pure.draw import Node, draw

__all__ = ["draw_svg"]

_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # rich links to a font on the network


def draw_svg(node: Node, *, width: int = 160) -> str:
    """`node` as an SVG document that loads nothing from elsewhere; `width` in characters."""
    console = Console(record=True, file=StringIO(), width=width)
    console.print(draw(node))
    return _FONTS.sub("", console.export_svg(title=node.text))
