"""Bytes of a log become numbered lines of bounded size, and a line loses what others put before its text."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["LINE_LIMIT", "Block", "Line", "Splitter", "bare", "clean"]

LINE_LIMIT = 256 * 1024  # bytes of one line held at a time; a longer one is looked at in overlapping pieces
OVERLAP = 4 * 1024  # no signature is longer

_COLOUR = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\n]{0,256}\x07")


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines (or a piece of a long one), free of colour codes and NULs."""

    first: int  # number of the first line
    data: bytes
    ends: int  # newlines in it


class Splitter:
    """Cuts a stream at `\\n`, whatever its chunks were. Holds at most LINE_LIMIT bytes."""

    def __init__(self) -> None:
        self._held = b""
        self._next = 1  # number of the line that `_held` belongs to

    @property
    def held(self) -> bytes:
        """The line that has not ended yet (or its last piece)."""
        return self._held

    def feed(self, data: bytes) -> Iterator[Block]:
        end = data.rfind(b"\n")
        if end >= 0:
            whole = bare(self._held + data[: end + 1] if self._held else data[: end + 1])
            self._held = data[end + 1 :]
            first, ends = self._next, whole.count(b"\n")
            self._next += ends
            yield Block(first, whole, ends)
        else:
            self._held += data
        while len(self._held) > LINE_LIMIT:
            piece, self._held = self._held[:LINE_LIMIT], self._held[LINE_LIMIT - OVERLAP :]
            yield Block(self._next, bare(piece), 0)

    def flush(self) -> Iterator[Block]:
        """The last line, when the stream ended without a newline. Should more come, it counts on from there."""
        held, self._held = self._held, b""
        if held:
            yield Block(self._next, bare(held), 0)


def bare(data: bytes) -> bytes:
    """Without colour codes and NULs, which may stand in the middle of the deciding words."""
    if b"\x1b" in data:
        data = _COLOUR.sub(b"", data)
    return data.replace(b"\0", b"") if b"\0" in data else data


@dataclass(frozen=True, slots=True)
class Line:
    """A line's text without its prefixes, and what the prefixes said."""

    number: int
    text: str
    rank: str | None = None  # "TP3", "DP0 TP0", "rank2"
    stamp: str | None = None  # the log's own time, as it stands there
    stream: str = ""  # the process or node that a collector says it comes from: its lines belong together


# What programs and collectors put before a line. Each is anchored; they come in any order and number.
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = tuple(
    re.compile(p)
    for p in (
        rf"\[(?P<stamp>{_STAMP})(?P<rank>(?: [A-Z_]+\d+)*)\] ?",  # SGLang
        rf"(?:(?:ERROR|INFO|WARN(?:ING)?|DEBUG) )?(?P<stamp>{_STAMP}) (?:std(?:out|err) [FP] )?",  # shippers
        r"\[severity: [A-Z]+\] ?",
        r"\((?:Worker_?|EngineCore_?|VllmWorker|RayWorkerWrapper|APIServer|ApiServer_\d+|SGLangEngine|\w+)?"
        r"(?P<rank>(?:(?:TP|PP|DP|EP)\d+_?)*)(?: ?pid=(?P<stream>\d+))(?:, ip=[\d.]+)?\) ?",  # vLLM, Ray
        r"(?:ERROR|INFO|WARNING|DEBUG|CRITICAL) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? "
        r"\[[^\]\s]+:\d+\] ?",                                                            # vLLM
        r"\[(?P<rank>rank\d+)\]:\[[A-Z]\d+ [\d:.]+ [\w.]+:\d+\] (?:\[Rank \d+\] )?",  # glog with torch's rank
        r"\[(?P<rank>rank\d+)\]: ?",
        r"\[(?P<rank>[A-Z]+\d+)\] (?=\S)",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.@/:-]+(?:\[\d+\])?: ?",  # journald, syslog
        r"[\w.-]+\s+\| ",  # docker compose
        r"> ",  # quoted in a thread
        r"(?P<stream>\d{1,4}): (?=\S| )",  # srun --label
        r"\[ *\d+\.\d{6}\] ",  # dmesg
        r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ",  # dmesg -T
        r"(?:ERROR|WARNING|CRITICAL|FATAL|INFO|DEBUG)\s*:\s{0,5}(?=\S|  )",
    )
)
_MOST_PREFIXES = 6
_JSON_LOG = re.compile(r'\{"(?:log|message|msg|line)":')


def clean(number: int, raw: bytes) -> Line:
    """A raw line as text. Of a progress bar drawn over itself, the text after the last `\\r` with something in it."""
    text = raw.decode("utf-8", "replace")
    if "\r" in text:
        text = _after_the_bar(text)
    if text.startswith("{") and _JSON_LOG.match(text):
        text = _from_json(text)
    rank = stamp = None
    stream = ""
    for _ in range(_MOST_PREFIXES):
        match = next((m for p in _PREFIXES if (m := p.match(text))), None)
        if match is None:
            break
        named = match.groupdict()
        rank = (named.get("rank") or "").strip(" _").replace("_", " ") or rank
        stamp = named.get("stamp") or stamp
        stream = named.get("stream") or stream
        text = text[match.end() :]
    return Line(number, text, rank, stamp, stream)


def _after_the_bar(text: str) -> str:
    parts = [part for part in text.split("\r") if part.strip()]
    if len(parts) < 2:
        return parts[0] if parts else ""
    # A fault may be glued to any of the bars; the bars themselves say nothing.
    kept = [part for part in parts if "%|" not in part and "% Completed" not in part]
    return " ".join([*kept, parts[-1]] if parts[-1] not in kept else kept)


def _from_json(text: str) -> str:
    try:
        record = json.loads(text)
    except ValueError:
        return text
    if not isinstance(record, dict):
        return text
    told = next((record[k] for k in ("log", "message", "msg", "line") if isinstance(record.get(k), str)), text)
    return str(told).rstrip("\n")
