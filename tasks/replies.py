"""Replies of a served API, one JSON object a line, as `bringup judge` reads them."""

import json
from collections.abc import Iterator
from pathlib import Path

from settings.source import BadInput
from tasks.pure.reply import Call

__all__ = ["read_replies"]


def read_replies(path: Path) -> Iterator[Call | BadInput]:
    """Each line as a Call, or as the complaint about that line; empty lines are passed over.

    Lines end at a newline byte only: a U+2028 inside a reply begins no new line.

    Raises: BadInput when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for n, line in enumerate(file, 1):
                if line.strip():
                    yield _call(line, path, n)
    except OSError as e:
        raise BadInput(path, "", f"cannot be read: {e.strerror or e}") from e


def _call(line: bytes, path: Path, n: int) -> Call | BadInput:
    where = f"line {n}"
    try:
        row = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as e:
        return BadInput(path, where, f"is no JSON: {e}")
    if not isinstance(row, dict):
        return BadInput(path, where, "is no JSON object")
    missing = [key for key in ("id", "reply") if key not in row]
    if missing:
        return BadInput(path, where, f"has no '{missing[0]}'; a line holds id, api, status, request, reply")
    status, request = row.get("status", 200), row.get("request")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int)):
        return BadInput(path, where, f"its status {status!r} is no number")
    if request is not None and not isinstance(request, dict):
        return BadInput(path, where, "its request is no JSON object")
    return Call(
        id=str(row["id"]),
        api=str(row.get("api") or "generate"),
        status=status or 0,
        request=request or {},
        reply=row["reply"],
        lost="" if status else "no answer came",
    )
