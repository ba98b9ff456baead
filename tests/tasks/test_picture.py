"""The picture for a browser is the one of the terminal."""

from settings.ladder import Ladder
from settings.source import find, load
from tasks.picture import draw_svg
from tasks.pure.draw import ladder_tree

LADDER = load(Ladder, find("ladders", "glm5-sm120"))


def test_the_svg_holds_the_same_words_and_loads_nothing_from_elsewhere() -> None:
    tree = ladder_tree(LADDER, "founding")
    svg = draw_svg(tree)
    assert svg.startswith("<svg")
    assert all(name in svg for name in LADDER.rung)
    assert "url(" not in svg.replace("url(#", "")
    assert svg == draw_svg(tree)
