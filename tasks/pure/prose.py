"""Whether a text can be an answer at all: unasked repetition, broken bytes, mixed scripts, word salad.

No model of any language: a few counts whose healthy range is known, each set so that a sound answer passes. A doubtful
text is called sound here; the log-probabilities (tasks/pure/judge.py) and the expected words of a suite say the rest.
"""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass

from tasks.pure.scripts import mixed_scripts

__all__ = ["Repetition", "entropy_bits", "repetition", "why_no_language"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
_SYMBOLS = {
    "0": "zero", "1": "one", "+": "plus", "-": "dash hyphen minus line", "*": "star asterisk", "=": "equal line",
    "!": "exclamation", "#": "hash pound", ".": "dot period", "_": "underscore line", "?": "question", "|": "pipe bar",
}
_AGAIN = re.compile(
    r"repeat|\btimes\b|copies|\becho\b|over and over|again and again|a row of|a line of|a string of|chant|lyrics|chorus"
    r"|répèt|\bfois\b|wiederhol|\bmal\b|repite|repetir|\bveces\b|ripeti|volte|повтори|\bраз\b|重复|重複"
    r"|[0-9一二三四五六七八九十百]+[遍次]|繰り返|回",
    re.I,
)
_MOJIBAKE = re.compile(
    r"[ÃÂ][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œ]|â€|ðŸ|[ÐÑ][\u0080-\u00bf]|[äåæçèé][\u0080-\u00bf]{2}"
)
_PIECES = re.compile(r"[ĠĊ]\w|<0x[0-9A-Fa-f]{2}>|▁\w")  # a tokenizer's own spelling, never joined into text
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ue000-\uf8ff\U000f0000-\U0010fffd]")
_BROKEN = (
    (_MOJIBAKE, "wrongly decoded characters"), (_PIECES, "raw token pieces"), (_CONTROL, "control characters"),
)
_CODE = re.compile(
    r"```|^\s*(def |class |import |from \w+ import|for .*[:{]$|if .*[:{]$|return\b|print\(|#include)"
    r"|^\s*(function |const |let |var |SELECT )"
    r"|[{};]\s*$|^\s*[\[{<]",
    re.M,
)
_MATH = re.compile(r"\\[a-zA-Z]+|[=≈≤≥∑∫√^]|\$")
_ABOUT_CODE = re.compile(
    r"\b(code|python|function|sql|shell|bash|script|json|xml|html|css|regex|command|program|loop|class|java\w*|c\+\+"
    r"|rust|yaml|url|latex|formula|equation)\b",
    re.I,
)
_ABOUT_WORDS = re.compile(
    r"\b(list|name|words|separated|enumerate|give|keywords|alphabet\w*|vocabulary|synonyms|translat\w+|\w+ian|\w+ish)\b",
    re.I,
)
_VOWELS = re.compile(r"vowel|conson|abbrev|acron", re.I)
_ENGLISH = _words("the of is are what who how why was and to about write tell")
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
_PREPOSITIONS = frozenset(["of", "to", "from", "at", "for", "into", "with", "in", "by"])
_DETERMINERS = frozenset(["the", "a", "an"])
_LINKS = _words("of the a an and or to in with for from by at as into than")  # none ends a clause
_PLAIN = re.compile(  # a word or a number, with what may stand around it
    r"[(\[\"'“‘*_#>-]*([^\W\d_]+(?:['’.-][^\W\d_]+)*|[\d.,:%$€£/-]+(?:st|nd|rd|th|s)?)[)\]\"'”’*_.,;:!?…-]*$"
)
_COMMON = _words(
    "the a an of to in is are was were be been and or but that this it its he she they we you i as at by for from on "
    "with not no has have had will can if so there which who what when "
    "le la les un une des de du et est en que qui dans pour sur pas au il elle "
    "der die das und ist ein eine nicht zu den dem mit von auf für im ich sie es wird "
    "el los las y es una que en por con para del se no su al lo "
    "il di che è per non si con una gli della sono o da os um uma não com do em "
    "het een van en niet dat op zijn te voor met som och att det en på är av för"
)


@dataclass(frozen=True, slots=True)
class Repetition:
    """The longest run of one unit of at most two words (or one character) in a text."""

    unit: str
    count: int
    share: float  # of the text's visible characters
    at_end: bool
    wanted: bool  # the request asked for it


def why_no_language(text: str, prompt: str, thinking: bool = False) -> str | None:
    """Why `text` is no language that fits `prompt`; None when nothing speaks against it. Empty text is fine here.

    `thinking`: the text is a model's reasoning, which may be in another language than the request.
    """
    if why := _broken_bytes(text, prompt):
        return why
    run = repetition(text, prompt)
    if run.wanted and run.share >= 0.5:
        return None
    return _repeated(text, run) or mixed_scripts(text, prompt, thinking) or _salad(text, prompt)


def repetition(text: str, prompt: str) -> Repetition:
    """The run that takes up most of the text."""
    runs = [_run_in_words(text), *(_run_of_words(text, size) for size in (1, 2))]
    unit, count, length, end = max(runs, key=lambda r: r[2])
    share = length / max(1, len("".join(text.split())))
    return Repetition(unit, count, share, end >= len(text.rstrip()), _was_asked(unit, count, prompt))


def _run_in_words(text: str) -> tuple[str, int, int, int]:
    """(unit, count, characters, end) of the longest run of at most four characters without a space."""
    found = max(re.finditer(r"(\S{1,4}?)\1{3,}", text), key=lambda m: len(m.group()), default=None)
    if not found:
        return "", 0, 0, 0
    unit, run = found.group(1), found.group()
    return unit, len(run) // len(unit), len(run), found.end()


def _run_of_words(text: str, size: int) -> tuple[str, int, int, int]:
    """The same for `size` words (or signs) in a row."""
    words = [(m.group(), m.start(), m.end()) for m in _WORD.finditer(text)]
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


def _repeated(text: str, run: Repetition) -> str | None:
    if run.wanted or run.count < 4:
        return None
    letters = re.sub(r"[\W\d_]", "", run.unit)
    size = run.count * len(run.unit)
    said = f"'{run.unit[:20]}' {run.count} times in a row, unasked"
    if not letters and _CODE.search(text) and (run.share < 0.8 or "```" in text):
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


def _stands_alone(unit: str, text: str) -> bool:
    """Whether the repeated unit is words of their own ("the the"), not a part of one ("Noooo")."""
    return bool(re.search(rf"(?<!\S){re.escape(unit)}(?!\w)[^\w]{{0,3}}\s+{re.escape(unit)}(?!\w)", text, re.I))


def _broken_bytes(text: str, prompt: str) -> str | None:
    inner = text.rstrip("\ufffd")  # at the very end a character may be cut by the length asked for
    lost = inner.count("\ufffd") + max(0, len(text) - len(inner) - 3)
    if "\ufffd" not in prompt and lost and (lost >= 2 or len(text) < 100):
        return f"{lost} replacement characters (broken UTF-8)"
    for pattern, name in _BROKEN:
        found = pattern.findall(text)
        if len(found) >= 2 and not pattern.search(prompt):
            return f"{len(found)} {name}"
    return None


def _salad(text: str, prompt: str) -> str | None:
    """Words that no grammar joins: five counts for Latin script, none of them for what is code or a list."""
    words = [w.casefold() for w in _WORD.findall(re.sub(r"\w+://\S+|\S*\d\S*", "0", text))]  # no addresses, no figures
    if len(words) < 8 or "```" in text or _ABOUT_CODE.search(prompt) or _CODE.search(prompt):
        return None
    pieces = text.split()
    odd = [p for p in pieces if not _PLAIN.match(p) and re.search(r"[a-zA-Z]", p)]
    if len(pieces) >= 8 and len(odd) / len(pieces) >= 0.4 and "\n" not in text.strip() and not _balanced(text):
        return f"word salad: {len(odd)} of {len(pieces)} pieces are no words"
    if _CODE.search(text) or _MATH.search(text):
        return None
    clashes = sum(_clash(a, b) for a, b in itertools.pairwise(words))
    if clashes >= 3 and clashes / len(words) >= 0.12:
        return f"word salad: {clashes} of {len(words) - 1} neighbours cannot stand together"
    latin = [w for w in words if re.fullmatch(r"[a-zà-öø-ÿ'’]+", w)]
    mute = [w for w in latin if len(w) >= 3 and not re.search(r"[aeiouyà-öø-ÿ]", w)]
    mostly = len(latin) / len(words) >= 0.6
    if mostly and len(latin) >= 6 and len(mute) / len(latin) >= 0.4 and not _VOWELS.search(prompt):
        return f"word salad: {len(mute)} of {len(latin)} words have no vowel"
    common = sum(w in _COMMON for w in latin)
    if len(latin) >= 16 and common / len(latin) >= 0.9:
        return f"word salad: {common} of {len(latin)} words only join others"
    breaks = len(re.findall(r"[.,;:!?\n•|/]", text)) + 1
    alone = len(latin) >= 12 and len(latin) / breaks >= 10 and len(latin) / len(words) > 0.8
    if alone and common / len(latin) < 0.08 and _calls_for_english_prose(prompt):
        return f"word salad: {common} of {len(latin)} words join the others"
    return None


def _calls_for_english_prose(prompt: str) -> bool:
    said = set(re.findall(r"[a-z]+", prompt.casefold()))
    return len(said & _ENGLISH) >= 2 and not _ABOUT_WORDS.search(prompt)


def _balanced(text: str) -> bool:
    """Whether each bracket that opens is closed: so it is in code, and hardly ever by chance."""
    open_ones: list[str] = []
    for char in re.sub(r"->|=>|<=|>=", "", text):
        if char in "([{":
            open_ones.append(char)
        elif char in ")]}" and (not open_ones or open_ones.pop() + char not in ("()", "[]", "{}")):
            return False
    return not open_ones


def _clash(a: str, b: str) -> bool:
    """Two neighbours that English does not put side by side: "the of", "of ,", ", )", "of of"."""
    if a in _DETERMINERS and (b in _LINKS or not re.match(r"[\w(\"'“‘*_`$#-]", b)):
        return True
    if a in _LINKS and re.fullmatch(r"[.,;:)!?]+", b):
        return True
    if a in _PREPOSITIONS and b in {"of", "and", "or", "is", "are", "was", "than", "to"}:
        return True
    if re.fullmatch(r"[,;(]", a) and re.fullmatch(r"[.,;:)!?-]", b):
        return True
    return a == b and a in _LINKS


def entropy_bits(text: str) -> float:
    """Shannon entropy of the words of a text, in bits a word; 0 for one word over and over."""
    counts = Counter(w.casefold() for w in _WORD.findall(text))
    total = counts.total()
    return -sum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0
