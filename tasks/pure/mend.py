"""What is left of a JSON text that was cut off: enough to see numbers and errors that came before the cut."""

import json
from typing import Any

__all__ = ["mended_json"]

_DEEPEST = 200  # levels; no reply has more, and closing each end of thousands would take minutes
_TRIES = 40  # ends looked at, from the last one back; the first few nearly always do


def mended_json(text: str) -> Any:
    """What a cut JSON text held up to its last whole value, or None."""
    closers: list[str] = []
    in_string = escaped = False
    ends: list[tuple[int, str]] = []  # where a value has just ended, and what would close the text there
    for at, char in enumerate(text):
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
            if in_string:
                continue
        elif char == '"':
            in_string = True
            continue
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
            if len(closers) > _DEEPEST:
                return None
        elif char in "}]" and closers:
            closers.pop()
        if char in '{[}],"':
            ends.append((at if char == "," else at + 1, "".join(reversed(closers))))
    if in_string:
        ends.append((len(text), '"' + "".join(reversed(closers))))
    for at, tail in reversed(ends[-_TRIES:]):
        try:
            return json.loads(text[:at] + tail, strict=False)
        except ValueError:
            continue
    return None
