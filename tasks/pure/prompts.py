"""Prompts of a wanted length that read like text and hide one fact, so that a right answer needs the whole prompt."""

from dataclasses import dataclass

__all__ = ["FILLER_SAMPLE", "HiddenFact", "hidden_fact"]

_WHO = ("The keeper of the mill", "A clerk from the harbour", "The older of the two sisters", "The man at the gate")
_DID = ("counted", "wrote down", "sold", "carried home", "looked for", "paid for", "asked about")
_WHAT = ("sacks of rye", "copper lamps", "rolls of cloth", "wooden crates", "letters", "baskets of apples", "old maps")
_WHEN = ("on a windy Tuesday", "before the first snow", "late in the evening", "while the ferry waited")


@dataclass(frozen=True, slots=True)
class HiddenFact:
    """A prompt and the word that answers it."""

    prompt: str
    answer: str


def _sentence(n: int) -> str:
    """The n-th sentence; their order repeats only after 420 of them, and each bears its number."""
    who, did, what, when = (words[n % len(words)] for words in (_WHO, _DID, _WHAT[:5], _WHEN))
    if n % 3 == 0:
        what = _WHAT[5 + n % 2]
    return f"{n}. {who} {did} {2 + n * 7 % 89} {what} {when}."


FILLER_SAMPLE = " ".join(_sentence(n) for n in range(1, 41))


def hidden_fact(tokens: int, chars_per_token: float, seed: int = 0) -> HiddenFact:
    """A prompt of about `tokens` tokens whose last line can only be completed by who has read its middle."""
    answer = str(20_000 + (tokens * 37 + seed * 811) % 70_000)  # no sentence has so high a number
    fact = f"Remember this: the code of the lighthouse is {answer}."
    question = "\n\nWhat was to be remembered? The code of the lighthouse is"
    room = tokens * chars_per_token - len(fact) - len(question)
    sentences: list[str] = []
    length = 0
    while length < room:
        sentences.append(_sentence(len(sentences) + 1 + seed))
        length += len(sentences[-1]) + 1
    sentences.insert(len(sentences) // 3, fact)
    return HiddenFact(" ".join(sentences) + question, answer)
