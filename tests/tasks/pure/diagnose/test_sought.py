"""Looking for the parts of a pattern one by one finds what the pattern finds, and costs next to nothing in vain."""

import re
import time

import pytest

from settings.catalogue import shipped_catalogue
from settings.milestones import shipped_milestones
from tasks.pure.diagnose import Diagnoser
from tasks.pure.diagnose.sought import Sought

CATALOGUE = shipped_catalogue()
EXAMPLES = [failure.example for failure in CATALOGUE.failure]


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("loud|quiet", "a quiet place", True),
        ("lo(?:ud|w)|qui[e|]t", "qui|t", True),
        (r"lo\|ud|quiet", "lo|ud", True),
        (r"lo\|ud|quiet", "loud", False),
        ("[]|]+end|start", "]|end", True),
        ("[^]|]end|start", "|end", False),
        (r"(?P<a>ab|cd)(?P=a)|fghi", "cdab", False),
        ("(?i)LOUD|quiet", "QUIET", True),
        ("", "anything", True),
    ],
)
def test_a_pattern_is_cut_only_where_it_says_or(pattern: str, text: str, fits: bool) -> None:
    assert fits == Sought(pattern).fits(text) == (re.search(pattern, text) is not None)


@pytest.mark.parametrize("of", ["failure", "deaths", "ignored", "advice", "hint", "milestones"])
def test_each_shipped_pattern_finds_what_it_found_as_a_whole(of: str) -> None:
    if of == "milestones":
        patterns = [mark.pattern for marks in shipped_milestones().engines.values() for mark in marks]
    else:
        patterns = [getattr(each, "pattern", each) for each in getattr(CATALOGUE, of)]
    texts = EXAMPLES[::7]
    for pattern in patterns:
        sought, whole = Sought(pattern), re.compile(pattern)
        assert [whole.search(text) is not None for text in texts] == [sought.fits(text) for text in texts], pattern
    assert of != "failure" or all(Sought(failure.pattern).fits(failure.example) for failure in CATALOGUE.failure)


def test_long_lines_that_only_look_like_a_fault_cost_little() -> None:
    diagnoser = Diagnoser(CATALOGUE, shipped_milestones())
    began = time.process_time()
    for _ in range(4):
        diagnoser.feed((b"x" * 1_000 + b" error\n") * 500)
    spent_s = time.process_time() - began  # 3 ms a line before each alternative was looked for by its literals
    assert "none" != diagnoser.diagnosis(ended=True).kind
    assert spent_s < 2_000 * 0.0015, f"{spent_s / 2_000 * 1000:.2f} ms a line"
