"""Text of others can be looked at without being acted on by."""

import pytest

from tasks.pure.visible import visible


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain — ünïcode ✓ 数", "plain — ünïcode ✓ 数"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07gone", "red and gone"),
        ("over\u202egnirts", "over⟨U+202E⟩gnirts"),
        ("\u2066isolate\u2069", "⟨U+2066⟩isolate⟨U+2069⟩"),
        ("bell\x07 back\x08 nul\x00", "bell⟨U+0007⟩ back⟨U+0008⟩ nul⟨U+0000⟩"),
        ("line\u2028break", "line⟨U+2028⟩break"),
        ("\ud800", "⟨U+D800⟩"),
    ],
)
def test_what_acts_is_taken_away_or_shown_by_its_code(raw: str, shown: str) -> None:
    assert shown == visible(raw)
