"""Runs of one word, pair or phrase in a text, and whether the request asked for them."""

import re
import unicodedata
from dataclasses import dataclass

from tasks.pure.words import CODE, WORD

__all__ = ["Repetition", "looped", "repeated", "repetition"]

_SYMBOLS = {
    "0": "zero", "1": "one", "+": "plus", "-": "dash hyphen minus line", "*": "star asterisk", "=": "equal line",
    "!": "exclamation", "#": "hash pound", ".": "dot period", "_": "underscore line", "?": "question", "|": "pipe bar",
}
_AGAIN = re.compile(
    r"repeat|\btimes\b|copies|\becho\b|over and over|again and again|a row of|a line of|a string of|chant|lyrics|chorus"
    r"|répèt|\bfois\b|wiederhol|\bmal\b|repite|repetir|\bveces\b|ripeti|volte|повтори|\bраз\b|重复|重複"
    r"|[0-9一二三四五六七八九十百]+[遍次回]|繰り返",
    re.I,
)
_SAME = re.compile(r"repeated|repeating|repetition|same (word|letter|token|character|sign)|one word only", re.I)
_NUMBERS = {
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "hundred": 100,
    "thousand": 1000,
}


@dataclass(frozen=True, slots=True)
class Repetition:
    """The longest run of one unit of at most two words (or one character) in a text."""

    unit: str
    count: int
    share: float  # of the text's visible characters
    at_end: bool
    wanted: bool  # the request asked for it


def repetition(text: str, prompt: str) -> Repetition:
    """The run that takes up most of the text."""
    runs = [_run_in_words(text), *(_run_of_words(text, size) for size in (1, 2))]
    unit, count, length, end = max(runs, key=lambda r: r[2])
    share = length / max(1, len("".join(text.split())))
    return Repetition(unit, count, share, end >= len(text.rstrip()), _was_asked(unit, count, prompt))


def repeated(text: str, run: Repetition) -> str | None:
    """Why this run is no part of a sound answer; None when it may be: a ruler, a table, an array, "Noooo"."""
    pictures = all(unicodedata.category(c) in ("So", "Sk", "Mn", "Cf", "Zs") for c in run.unit)
    if run.wanted or run.count < (20 if pictures else 4):
        return None
    letters = re.sub(r"[\W\d_]", "", run.unit)
    size = run.count * len(run.unit)
    said = f"'{run.unit[:20]}' {run.count} times in a row, unasked"
    if not letters and CODE.search(text) and (run.share < 0.8 or "```" in text):
        return None  # a ruler, a table or an array
    if not letters and run.share < 0.8 and re.search(rf"^\W*{re.escape(run.unit * run.count)}\W*$", text, re.M):
        return None  # a ruler on a line of its own
    if " " not in run.unit and run.unit.isascii() and len(run.unit) <= 4 and not _stands_alone(run.unit, text):
        # Inside a word or number: "Noooo", 0.3333, a ruler. Long, and all there is.
        enough = run.share >= (0.9 if run.unit.isdigit() else 0.8) and size >= 16
        return said if enough or (size >= 40 and run.at_end and not run.unit.isdigit()) else None
    if run.share >= 0.8 or (run.share >= 0.4 and run.count >= 8) or (run.at_end and run.count >= 12) or run.count >= 30:
        return said
    return None


def looped(text: str, prompt: str) -> str | None:
    """A phrase of 3 to 20 words that goes round: no healthy model of size does so within a short answer."""
    if "```" in text or _AGAIN.search(prompt):
        return None
    words = [w.casefold() for w in re.findall(r"\w+", text)]
    for size in range(3, 21):
        best = here = 0
        for i in range(size, len(words)):
            here = here + 1 if words[i] == words[i - size] else 0
            best = max(best, here)
        rounds = best // size + 1
        if rounds >= 6 and rounds * size >= 0.6 * len(words):
            return f"a phrase of {size} words {rounds} times in a row, unasked"
    return None


def _run_in_words(text: str) -> tuple[str, int, int, int]:
    """(unit, count, characters, end) of the longest run of at most four characters without a space."""
    found = max(re.finditer(r"(\S{1,4}?)\1{3,}", text), key=lambda m: len(m.group()), default=None)
    if not found:
        return "", 0, 0, 0
    unit, run = found.group(1), found.group()
    return unit, len(run) // len(unit), len(run), found.end()


def _run_of_words(text: str, size: int) -> tuple[str, int, int, int]:
    """The same for `size` words (or signs) in a row."""
    words = [(m.group(), m.start(), m.end()) for m in WORD.finditer(text)]
    shown = [w.casefold() for w, _, _ in words]
    best, start = (0, 0), 0
    for i in range(size, len(shown) + 1):
        if i == len(shown) or shown[i] != shown[i - size]:
            if i - start >= 2 * size and i - start > best[1] - best[0]:
                best = (start, i)
            start = i - size + 1
    first, last = best
    if last == first:
        return "", 0, 0, 0
    unit = " ".join(w for w, _, _ in words[first : first + size])
    return unit, (last - first) // size, sum(len(w) for w, _, _ in words[first:last]), words[last - 1][2]


def _was_asked(unit: str, count: int, prompt: str) -> bool:
    """The request names the unit (or what the sign is called), and wants it again or that many times."""
    if _SAME.search(prompt):
        return True
    said = prompt.casefold()
    words = set(re.findall(r"\w+", said))
    unit_words = set(re.findall(r"\w+", unit.casefold()))
    run_on = said if any(ord(c) > 0x2E80 for c in unit) else ""  # these scripts put no space between words
    named = (
        (bool(unit_words) and all(w in words or w in run_on for w in unit_words))
        or any(name in said for name in _SYMBOLS.get(unit[:1], "").split())
        or (bool(unit) and not unit_words and unit in prompt)
    )
    if not named:
        return False
    numbers = [int(n) for n in re.findall(r"\d{1,6}", said)] + [n for w, n in _NUMBERS.items() if w in words]
    return bool(_AGAIN.search(prompt)) or any(count * 0.5 <= n for n in numbers if n >= 3)


def _stands_alone(unit: str, text: str) -> bool:
    """Whether the repeated unit is words of their own ("the the"), not a part of one ("Noooo")."""
    return bool(re.search(rf"(?<!\S){re.escape(unit)}(?!\w)[^\w]{{0,3}}\s+{re.escape(unit)}(?!\w)", text, re.I))
