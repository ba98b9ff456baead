"""Text of others made harmless to look at: nothing in it moves a cursor, colours a screen or turns a line round."""

import re
import unicodedata

__all__ = ["escaped", "visible"]

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PLAIN = {"\n", "\t"}


def visible(text: str) -> str:
    """`text` without terminal sequences; what remains of controls and of marks of direction is shown by its code."""
    return "".join(c if c in _PLAIN or not _acts(c) else f"⟨U+{ord(c):04X}⟩"
                   for c in _ANSI.sub("", text).replace("\r\n", "\n"))


def escaped(toml: str) -> str:
    """TOML whose strings say the same, and act on nobody's terminal: what would act is written as its code."""
    return "".join(c if c in _PLAIN or not _acts(c) else f"\\U{ord(c):08X}" for c in toml)


def _acts(char: str) -> bool:
    """Controls, and the format characters that change how others are shown (bidi overrides, no-width joiners, …)."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
