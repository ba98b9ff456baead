"""Whether a text can be an answer at all: unasked repetition, broken bytes, mixed scripts, word salad.

No model of any language: a few counts whose healthy range is known, each set so that a sound answer passes. A doubtful
text is called sound here; the log-probabilities (tasks/pure/judge.py) and the expected words of a suite say the rest.
"""

import math
import re
import unicodedata
from collections import Counter

from tasks.pure.repetition import looped, repeated, repetition
from tasks.pure.salad import word_salad
from tasks.pure.scripts import mixed_scripts
from tasks.pure.words import WORD

__all__ = ["entropy_bits", "why_no_language"]

_MOJIBAKE = re.compile(
    r"[ÃÂ][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œ]|â€|ðŸ|[ÐÑ][\u0080-\u00bf]|[äåæçèé][\u0080-\u00bf]{2}"
)
_PIECES = re.compile(r"[ĠĊ]\w|<0x[0-9A-Fa-f]{2}>|▁\w")  # a tokenizer's own spelling, never joined into text
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ue000-\uf8ff\U000f0000-\U0010fffd]")
_BROKEN = (
    (_MOJIBAKE, "wrongly decoded characters"), (_PIECES, "raw token pieces"), (_CONTROL, "control characters"),
)
_ABOUT_SIGNS = re.compile(
    r"sign|punctuat|symbol|draw|ascii|morse|dots?\b|dash|line|emotic|brainf|pattern|art\b|star", re.I
)
_ABOUT_FIGURES = re.compile(
    r"\d|number|count|digit|sequence|series|year|date|phone|pi\b|prime|fibonacci|random|table|data|binary|square|multipl"
    r"|math|vector|matrix|array|figures|how many|zero",
    re.I,
)


def why_no_language(text: str, prompt: str, thinking: bool = False) -> str | None:
    """Why `text` is no language that fits `prompt`; None when nothing speaks against it. Empty text is fine here.

    `thinking`: the text is a model's reasoning, which may be in another language than the request.
    """
    if why := _broken_bytes(text, prompt):
        return why
    run = repetition(text, prompt)
    if run.wanted and run.share >= 0.5:
        return None
    return (
        repeated(text, run)
        or looped(text, prompt)
        or mixed_scripts(text, prompt, thinking)
        or _no_words(text, prompt)
        or word_salad(text, prompt)
    )


def entropy_bits(text: str) -> float:
    """Shannon entropy of the words of a text, in bits a word; 0 for one word over and over."""
    counts = Counter(w.casefold() for w in WORD.findall(text))
    total = counts.total()
    return -sum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0


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


def _no_words(text: str, prompt: str) -> str | None:
    """Nothing but signs, or nothing but figures, where the request has none."""
    pieces = text.split()
    bare = "".join(pieces)
    signs = sum(unicodedata.category(c)[0] == "P" or c in "+<=>|~^`$" for c in bare)
    if len(bare) >= 6 and signs == len(bare) and not _ABOUT_SIGNS.search(prompt) and bare not in prompt:
        return "nothing but punctuation"
    figures = sum(bool(re.fullmatch(r"[\d.,;:%+-]+", p)) and any(c.isdigit() for c in p) for p in pieces)
    if len(pieces) >= 12 and figures >= 0.9 * len(pieces) and not _ABOUT_FIGURES.search(prompt):
        return f"{figures} of {len(pieces)} pieces are figures"
    return None
