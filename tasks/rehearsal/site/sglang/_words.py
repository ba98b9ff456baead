"""A stand-in for a model's language: a tokenizer, and an answer that a sane model could give, the same each time."""

import re
import zlib
from collections.abc import Sequence

__all__ = ["END_TOKEN", "answer", "logprob", "to_pieces", "token_of", "wording"]

END_TOKEN = 151_329
_PIECE = re.compile(r"\s*\w+|\s*[^\w\s]|\s+$")
_FIRST_ID, _IDS = 256, 150_000
_FILLER = (
    " The harbour wakes before the town does.",
    " Boats come in with the tide, and gulls follow them along the grey wall.",
    " Someone counts crates while the baker opens a green door.",
    " By noon the market is full of bread, fish, rope and talk.",
    " Rain may arrive from the west, yet nobody minds it much.",
    " Children run between carts until a bell rings at four.",
    " In the evening lamps are lit one after another up the hill.",
    " Then the water grows quiet, and only the clock keeps moving.",
)


def to_pieces(text: str) -> list[str]:
    """The text cut into tokens; joined again they give the text."""
    return _PIECE.findall(text)


def token_of(piece: str) -> int:
    return _FIRST_ID + zlib.crc32(piece.encode()) % _IDS


def wording(ids: Sequence[int]) -> str:
    """Some text for token ids that came without one: this vocabulary cannot be read backwards."""
    return " ".join(f"w{token}" for token in ids)


def logprob(piece: str, place: int) -> float:
    """A log-probability as a confident model gives it."""
    return -0.01 - (zlib.crc32(f"{piece}{place}".encode()) % 1_000) / 800


def answer(prompt: str, seed: int = 0) -> list[str]:
    """The pieces of a whole answer: what the prompt asks for where that can be seen, then plain sentences."""
    start = (zlib.crc32(prompt.encode()) + seed) % len(_FILLER)
    known = _known(prompt)
    rest = [_FILLER[(start + n) % len(_FILLER)] for n in range(2 if known else 4)]
    return to_pieces(known + "".join(rest))


def more(start: int) -> list[str]:
    """Pieces to go on with where an answer may not end."""
    return to_pieces(_FILLER[start % len(_FILLER)])


def _known(prompt: str) -> str:
    if re.search(r"capital (city )?of France\W*(is\W*|\?\W*)?$", prompt.strip(), re.IGNORECASE):
        return " Paris. It lies on the Seine."
    sum_of = re.search(r"(\d+)\s*\+\s*(\d+)\s*(=|\?|equals|is)?\s*$", prompt.strip())
    if sum_of:
        return f" {int(sum_of[1]) + int(sum_of[2])}."
    return _asked_for(prompt) or _continued(prompt)


def _asked_for(prompt: str) -> str:
    """`What is the X?` where the prompt says `X is Y.` somewhere."""
    asked = re.findall(r"what (?:is|was|are) (?:the |your )?([^?.\n]+?)\s*\?", prompt, re.IGNORECASE)
    if not asked:
        return ""
    told = re.search(rf"{re.escape(asked[-1])} (?:is|was|are)[:\s]+([^.\n]+)", prompt, re.IGNORECASE)
    return f" {told[1].strip()}." if told else ""


def _continued(prompt: str) -> str:
    """What followed the last words of the prompt when they were there before."""
    words = prompt.split()
    for length in range(min(12, len(words) - 1), 2, -1):
        tail = " ".join(words[-length:])
        before = " ".join(words[:-1])
        found = before.find(tail)
        if found >= 0:
            follows = before[found + len(tail):].split(".")[0].strip()
            return f" {follows}." if follows else ""
    return ""
