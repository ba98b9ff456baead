import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from settings.catalogue import shipped_catalogue
from settings.literals import required_literals

ENTRIES = shipped_catalogue().failure


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("CUDA out of memory", {"CUDA out of memory"}),
        ("(?:foo bar|bazzz)\\d+x", {"foo bar", "bazzz"}),
        ("[Ww]atchdog timeout", {"Watchdog timeout", "watchdog timeout"}),
        ("colou?r of it", {"colour of it", "color of it"}),
        ("Xid \\(.*\\): 13", {"Xid ("}),
        ("abc|defg", set()),
        ("(?i)some words", set()),
        (".*", set()),
    ],
)
def test_a_match_holds_one_of_the_required_literals(pattern: str, literals: set[str]) -> None:
    assert frozenset(literals) == required_literals(pattern)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_match_of_a_shipped_pattern_is_missed(data: st.DataObject) -> None:
    entry = data.draw(st.sampled_from(ENTRIES))
    text = data.draw(st.from_regex(re.compile(entry.pattern.replace("^", "").replace("$", "")), fullmatch=True))
    assert any(literal in text for literal in required_literals(entry.pattern))
