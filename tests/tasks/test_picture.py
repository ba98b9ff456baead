"""The picture for a browser is the one of the terminal."""

from settings.ladder import Ladder
from settings.source import find, load
from tasks.picture import draw_svg, draw_text
from tasks.pure.draw import ladder_tree

LADDER = load(Ladder, find("ladders", "glm5-sm120"))


def test_the_svg_holds_the_same_words_and_loads_nothing_from_elsewhere() -> None:
    tree = ladder_tree(LADDER, "founding")
    svg = draw_svg(tree)
    assert svg.startswith("<svg")
    assert all(name in svg for name in LADDER.rung)
    assert "url(" not in svg.replace("url(#", "")
    assert svg == draw_svg(tree)


def test_the_text_holds_the_same_words_and_nothing_to_its_right() -> None:
    lines = draw_text(ladder_tree(LADDER, "founding")).splitlines()
    assert lines[0] == "founding"
    assert all(name in "\n".join(lines) for name in LADDER.rung)
    assert max(map(len, lines)) <= 110
    assert lines == [line.rstrip() for line in lines]
