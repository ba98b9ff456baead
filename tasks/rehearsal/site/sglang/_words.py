"""A stand-in for a model's language: a tokenizer, and an answer that a sane model could give, the same each time."""

import re
import zlib
from collections.abc import Sequence

__all__ = ["END_TOKEN", "THOUGHT_ENDS", "answer", "logprob", "more", "salad", "to_pieces", "token_of", "wording"]

END_TOKEN = 151_329
THOUGHT_ENDS = "</think>"
_PIECE = re.compile(r"\s*\w+|\s*[^\w\s]|\s+$")
_FIRST_ID, _IDS = 256, 150_000
_WHO = ("The harbour pilot", "A baker", "Our neighbour", "The night watch", "An old clerk", "The ferryman", "Her aunt")
_DID = ("carried", "mended", "sold", "painted", "found", "counted", "washed", "hid", "borrowed")
_WHAT = (
    "three nets", "a blue door", "some rope", "the brass bell", "two ladders", "a map of the coast", "his coat",
    "a crate of pears", "the long table", "an empty bottle", "their lamps",
)
_WHERE = ("by the grey wall", "behind the market", "on the hill", "near the bridge", "at the corner")
_WHEN = ("before noon", "in the rain", "without a word", "after the storm", "last spring", "at four", "slowly", "again")
_SALAD = (
    "кот", "海洋", "shadow", "वाहन", "ليل", "tensor", "하늘", "βίος", "ocean", "火车",
    "лодка", "מים", "sail", "τρία", "雨", "ग्राम", "hız", "ночь", "木", "بحر",
)
# What a sane model knows, as far as common first questions go; looked up in the end of the prompt.
_KNOWN = (
    (r"capital (city )?of france\W*(is|\?)?\W*$", " Paris. It lies on the Seine."),
    (r"capital (city )?of italy\W*(is|\?)?\W*$", " Rome. It lies on the Tiber."),
    (r"the sun rises in the$", " east, and it sets in the west."),
    (r"opposite of hot is$", " cold."),
    (r"primary colou?rs of light\W*$", " Red, green and blue."),
    (r"17 sheep.*how many are left", " The answer is 9."),
    (r"largest planet of the solar system is$", " Jupiter."),
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


def salad(key: str, place: int) -> tuple[str, int, float]:
    """Piece, token and log-probability of a draw from a row that knows nothing."""
    draw = zlib.crc32(f"{key}{place}".encode())
    piece = " " + _SALAD[draw % len(_SALAD)]
    return piece, token_of(piece), -9.0 - draw % 4_000 / 1_000


def answer(prompt: str, seed: int = 0, *, thinks: bool = False, wrong: bool = False) -> list[str]:
    """The pieces of a whole answer: what the prompt asks for where that can be seen, then plain sentences.

    `thinks`: some sentences before it, and the mark that ends them. `wrong`: sums above nine are not right.
    """
    start = zlib.crc32(prompt.encode()) + seed
    known = _known(prompt, wrong)
    if thinks:
        thought = "".join(_sentence(start + 100 + n) for n in range(3))
        return [*to_pieces(f" Let me think.{thought}"), THOUGHT_ENDS, *answer(prompt, seed, wrong=wrong)]
    return to_pieces(known + "".join(_sentence(start + n) for n in range(1 if known else 3)))


def more(prompt: str, place: int) -> list[str]:
    """Pieces to go on with, from the place where an answer may not end."""
    return to_pieces(_sentence(zlib.crc32(prompt.encode()) + 1_000 + place))


def _sentence(n: int) -> str:
    """The n-th sentence; they repeat after 27,720."""
    who, did, what, where, when = (words[n % len(words)] for words in (_WHO, _DID, _WHAT, _WHERE, _WHEN))
    return f" {who} {did} {what} {where} {when}."


def _known(prompt: str, wrong: bool) -> str:
    asked = prompt.strip().lower()[-400:]
    for pattern, told in _KNOWN:
        if re.search(pattern, asked, re.DOTALL):
            return told
    terms = re.search(r"(\d+)\s*\+\s*(\d+)", asked)
    if terms and len(asked) < 100:
        total = int(terms[1]) + int(terms[2])
        return f" {total + 10 if wrong and total > 9 else total}."
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
