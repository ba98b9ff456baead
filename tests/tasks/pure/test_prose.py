"""The counts behind the verdict garbage, each at its edge."""

import pytest

from tasks.pure.prompts import FILLER_SAMPLE
from tasks.pure.prose import entropy_bits, why_no_language
from tasks.pure.repetition import repetition
from tasks.pure.scripts import mixed_scripts, scripts_in

LONG = "The long road over the hills was closed, and the carts had to wait in the valley for three days."


@pytest.mark.parametrize(
    ("text", "unit", "count"),
    [
        ("the the the the", "the", 4),
        ("It is so so so so good", "so", 4),
        ("a b a b a b", "a b", 3),
        ("++++++++", "+", 8),
        ("abababab", "ab", 4),
    ],
)
def test_the_longest_run_is_found(text: str, unit: str, count: int) -> None:
    run = repetition(text, "")
    assert (unit, count) == (run.unit, run.count)


@pytest.mark.parametrize(
    ("prompt", "unit", "wanted"),
    [
        ("Repeat the word yes 20 times.", "yes ", True),
        ("Repeat the word no 20 times.", "yes ", False),
        ("Is it true? Answer yes or no.", "yes ", False),
        ("Print 50 plus signs.", "+", True),
        ("Give me 2 reasons and a plus.", "+", False),
        ("重复“好”这个字20遍", "好", True),
    ],
)
def test_a_run_is_wanted_only_when_the_request_names_it_and_wants_it_again(
    prompt: str, unit: str, wanted: bool
) -> None:
    assert wanted == repetition(unit * 20, prompt).wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fine text\ufffd", None),  # cut at the end by its length
        ("bad \ufffd text", "replacement"),
        (LONG + " \ufffd Then", None),
        ("cafÃ© thÃ©", "decoded"),
        ("café thé", None),
        ("a\x01b\x02", "control"),
    ],
)
def test_broken_bytes_are_seen_and_a_cut_last_character_is_not(text: str, said: str | None) -> None:
    why = why_no_language(text, "Say something long enough.")
    assert (said is None and why is None) or (said is not None and why is not None and said in why)


def test_our_own_filler_is_language() -> None:
    assert why_no_language(FILLER_SAMPLE, "Tell a story.") is None


@pytest.mark.parametrize(
    ("text", "prompt", "fits"),
    [
        ("The river (Москва) is long", "Which river?", True),
        ("The word is 水.", "What is the word?", True),
        ("The 水 and the 火 are old", "What is old?", False),
        ("α + β = γ", "Add them.", True),
        ("Это ответ на вопрос.", "What is the answer?", False),
        ("Это ответ на вопрос.", "Answer in Russian: what is it?", True),
        ("Hello / Привет / こんにちは", "Say hello in several languages.", True),
    ],
)
def test_scripts_may_mix_only_where_the_request_explains_it(text: str, prompt: str, fits: bool) -> None:
    assert fits == (mixed_scripts(text, prompt) is None)


def test_thinking_may_be_in_another_language_but_not_in_several() -> None:
    assert mixed_scripts("Это ответ на вопрос.", "What is it?", thinking=True) is None
    assert mixed_scripts("Это 答案 ответ คำตอบ", "What is it?", thinking=True) is not None


def test_letters_are_counted_by_script() -> None:
    assert {"LATIN": 2, "Han": 1, "CYRILLIC": 1} == dict(scripts_in("ab 水 я 12 !"))


def test_entropy_is_none_for_one_word_and_one_bit_for_two() -> None:
    assert (0.0, 1.0) == (entropy_bits("the the the"), entropy_bits("a b a b"))
