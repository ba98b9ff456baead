"""The judge against the labelled replies, real recorded ones, and a table of neighbours of each verdict."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.words import Verdict
from tasks.pure.judge import Call, judge, judge_numbers
from tests.tasks.pure.reply_forms import (
    FRANCE,
    chat,
    chat_stream,
    completions,
    native,
    native_stream,
    sse,
    verdict,
)

CORPUS = Path(__file__).parents[2] / "corpus"
LABELLED = [json.loads(line) for line in (CORPUS / "replies.jsonl").read_text(encoding="utf-8").split("\n") if line]


def _call(row: dict[str, Any]) -> Call:
    return Call(row["id"], row["api"], row["status"], row["request"], row["reply"])


@pytest.mark.parametrize("row", LABELLED, ids=lambda row: row["id"])
def test_each_labelled_reply_gets_its_label(row: dict[str, Any]) -> None:
    assert row["verdict"] == judge(_call(row)).verdict


CHINESE = "法国的首都是哪里?"
SOUND: list[tuple[str, Any]] = [
    # short
    (FRANCE, chat("Paris.")),
    ("What is 2 + 2?", chat("4")),
    ("Is water wet?", chat("Yes")),
    ("Reply with a thumbs up emoji.", chat("👍")),
    # repetition that was asked for
    ("Repeat the word yes 20 times.", chat("yes " * 20)),
    ("Write ha ten times.", chat("ha ha ha ha ha ha ha ha ha ha")),
    ("Print 50 plus signs.", chat("+" * 50)),
    ("Draw a line of 40 dashes.", chat("-" * 40)),
    ("Write ten exclamation marks.", chat("!" * 10)),
    ("Write thirty zeros.", chat("0" * 30)),
    ("Write the letter a 20 times.", chat("a" * 20)),
    ("Repeat tick tock 8 times", chat("tick tock " * 8)),
    ("Give a sentence with one word repeated.", chat("Buffalo buffalo Buffalo buffalo buffalo buffalo.")),
    # repetition that belongs to the form
    ("Sing.", chat("Row, row, row your boat,\nMerrily, merrily, merrily, merrily,\nLife is but a dream.")),
    ("Give me a list of ten zeros in JSON.", chat("[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]")),
    ("Initialise an array.", chat("```python\nx = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n```")),
    ("Make a small table.", chat("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |")),
    ("Write markdown with a ruler.", chat("# Title\n\n" + "-" * 48 + "\n\nText about the sea and the wind.")),
    ("Count to 12.", chat("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")),
    ("How many?", chat("It's 100000000000000000000 atoms.")),
    ("1/3 with 40 digits", chat("The answer is: 0." + "3" * 40)),
    ("How is it?", chat("That is very, very, very, very good.")),
    ("Shout no", chat("Noooooooo!")),
    # other scripts, used or named in the request
    (CHINESE, chat("法国的首都是巴黎。")),
    ("フランスの首都はどこですか?", chat("フランスの首都はパリです。")),
    ("프랑스의 수도는 어디입니까?", chat("프랑스의 수도는 파리입니다.")),
    ("Какая столица Франции?", chat("Столица Франции — Париж.")),
    ("ما هي عاصمة فرنسا؟", chat("عاصمة فرنسا هي باريس.")),
    ("用中文介绍Python", chat("Python是一种编程语言,使用简单,巴黎的学生也用Python。")),
    ("How do you say thank you in Russian?", chat("Спасибо")),
    ("Translate 'hello world' into Chinese.", chat("你好,世界")),
    ("What is the capital of Japan?", chat("Tokyo (東京) is the capital of Japan.")),
    ("Mikä on Ranskan pääkaupunki?", chat("Ranskan pääkaupunki on Pariisi, joka sijaitsee Seinen varrella.")),
    (FRANCE, chat("Paris", reasoning_content="法国的首都是巴黎,所以答案是巴黎。")),
    # code, mathematics, data
    ("Area of a circle?", chat("The area is πr², and α + β = γ, while Δx → 0.")),
    ("Integrate x^2.", chat("$$\\int_0^1 x^2\\,dx = \\frac{1}{3}$$")),
    ("Answer in JSON.", chat('{"city": "Paris", "country": "France"}')),
    ("SQL to count users.", chat("SELECT name, COUNT(*) FROM users GROUP BY name ORDER BY 2 DESC;")),
    ("A shell command", chat("ls -la | grep '^d' && find . -name '*.py' -exec wc -l {} +")),
    ("Name 12 colours.", chat("red green blue yellow orange purple black white brown pink grey cyan")),
    ("Hi in binary", chat("01001000 01101001 00000000 00000000")),
    ("star triangle", chat("*\n**\n***\n****\n*****")),
    ("List the even numbers.", chat("2 4 6 8 10 12 14 16 18 20 22 24 26")),
    ("A party emoji?", chat("🎉🎉🎉🎉🎉🎉")),
    ("Name places.", chat("La Côte d'Azur, München, São Paulo, Kraków and Malmö are places.")),
    ("请回答:唱一首歌", chat("两只老虎,两只老虎,跑得快,跑得快。")),
    # fields that may be empty
    ("Weather?", chat(None, tool_calls=[{"function": {"name": "weather", "arguments": "{}"}}], finish="tool_calls")),
    (FRANCE, chat(None, reasoning_content="The user asks about France: Paris.")),
    (FRANCE, chat("Paris.", logprobs=None)),
    (FRANCE, {**chat("Paris."), "error": None}),
    # token 0 as end token, and as one exclamation mark
    (FRANCE, native(" Paris.", [12366, 13, 0], [-0.1, -0.3, -0.1], matched=0)),
    (FRANCE, native(" Paris!", [12366, 0], [-0.1, -0.3], finish="length")),
    (FRANCE, completions(" Paris.", " Paris, of course.")),
    (FRANCE, [native(" Paris."), native(" Rome.")]),
    # a character cut by the length asked for
    ("A story with emoji", chat("The quick brown fox 🦊\ufffd", finish="length")),
    (FRANCE, native_stream([" Paris", ",", " of", " course"], [1, 2, 3, 4], cumulative=True)),
    (FRANCE, native_stream([" Paris", ",", " of", " course"], [1, 2, 3, 4], cumulative=False)),
    (FRANCE, chat_stream([" Paris", "."]).replace("\n", "\r\n")),
    (FRANCE, chat_stream([" Paris", "."], done=False)),  # the finish reason came: nothing is missing
    (FRANCE, ": keep-alive\n\n" + chat_stream([" Paris", "."])),
]


@pytest.mark.parametrize(("prompt", "reply"), SOUND)
def test_a_sound_reply_passes(prompt: str, reply: Any) -> None:
    assert verdict(reply, prompt) == Verdict.OK


ERRORS: list[tuple[int, Any]] = [
    (0, None),
    (400, {"object": "error", "message": "bad", "code": 400}),
    (429, chat("Paris.")),
    (500, "Internal Server Error"),
    (503, ""),
    (200, {"error": {"message": "x"}}),
    (200, '{"error":{"message":"Inter'),
    (200, "<html>502 Bad Gateway</html>"),
    (200, native(" Par", [5], finish="abort")),
    (200, chat("Par", finish="abort")),
    (200, [native(" a", [4]), native("", [], finish="abort")]),
    (200, sse({"text": " Par", "meta_info": {"finish_reason": {"type": "abort", "message": "in waiting queue"}}})),
    (200, chat_stream([" Par"], None, done=False) + '{"error":{"message":"outside the protocol"}}'),
    (200, chat_stream([" Par"], None, done=False) + sse({"error": {"message": "NaN", "code": 500}})),
]


@pytest.mark.parametrize(("status", "reply"), ERRORS)
def test_a_refusal_or_an_abort_is_an_error(status: int, reply: Any) -> None:
    assert verdict(reply, status=status) == Verdict.ERROR


NAN: list[Any] = [
    *(native(" Paris is", [5, 6, 7], [-0.1, bad, -0.2]) for bad in (None, math.nan, -math.inf, math.inf)),
    *(native(" Paris is", [5, 6, 7], [-0.1, -0.2, bad]) for bad in ("NaN", "-Infinity", "inf", -9999.0)),
    chat("Paris", logprobs={"content": [{"token": "Paris", "logprob": None}]}),
    completions("Paris", logprobs={"token_logprobs": [None, None], "tokens": ["a", "b"]}),
    *(native(" kd jf", [5, 66, 7], [round(-math.log(size), 5)] * 3) for size in (512, 32_000, 128_256, 151_936)),
    native(" kd jf", [5, 66, 7], [-11.9375] * 3),  # log(151936) in bfloat16
    native(" Paris is!!!!", [5, 6, 0, 0, 0, 0]),
    native(" Paris is the", [5, 6, 7] + [0] * 20, finish="length"),
    native("", [0], [None]),
    native("", [0, 0, 0, 0], finish="length"),
    chat("!" * 64, finish="length"),
    chat("!!!!"),
    chat(" ! ! ! ! !"),
    chat("The capital of France is Paris" + "!" * 40, finish="length"),
    chat(None, reasoning_content="!" * 40, finish="length"),
    completions(" Paris.", "!!!!!!!!"),
    chat_stream(["!"] * 12, "length"),
    native_stream(["!"] * 6, [0] * 6, cumulative=True),
    native_stream(["!"] * 6, [0] * 6, cumulative=False),
    '{"text":" a","output_ids":[4,5],"meta_info":{"output_token_logprobs":[[NaN,4,null],[NaN,5,',
    '{"text":" a","meta_info":{"output_token_logprobs":[[-Infinity,4,null]],"finish_reason":{"type":"length"}}}',
    sse({"text": " a", "output_ids": [4], "meta_info": {"output_token_logprobs": [[None, 4, None]]}}, done=False),
]


@pytest.mark.parametrize("reply", NAN)
def test_numbers_that_are_none_are_nan(reply: Any) -> None:
    assert verdict(reply) == Verdict.NAN


TRUNCATED: list[Any] = [
    "{",
    '{"text":" Paris is the cap',
    '{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"The cap',
    chat("The capital", finish=None),
    completions("The capital", finish=None),
    native("", [], finish=None),
    {"text": " Paris is the"},
    chat_stream(["Par"], None, done=False),
    chat_stream(["Par"], None),
    chat_stream(["Par"], None, done=False) + 'data: {"choices":[{"ind',
    chat_stream([], None, done=False),
]


@pytest.mark.parametrize("reply", TRUNCATED)
def test_a_reply_without_its_end_is_truncated(reply: Any) -> None:
    assert verdict(reply) == Verdict.TRUNCATED


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"ignore_eos": True, "max_new_tokens": 64}, Verdict.TRUNCATED),
        ({"sampling_params": {"ignore_eos": True, "max_new_tokens": 64}}, Verdict.TRUNCATED),
        ({"ignore_eos": True, "max_tokens": 64}, Verdict.TRUNCATED),
        ({"ignore_eos": True, "max_new_tokens": 2}, Verdict.OK),
        ({"max_new_tokens": 64}, Verdict.OK),
    ],
)
def test_fewer_tokens_than_asked_count_only_where_the_end_token_was_to_be_ignored(
    request_: dict[str, Any], expected: Verdict
) -> None:
    assert verdict(native(" Paris, which", [5, 6], finish="length"), **request_) == expected


EMPTY: list[Any] = [
    "",
    None,
    chat(""),
    chat(None),
    chat(" \n\t\u3000\u00a0"),
    chat(None, reasoning_content=""),
    chat("", tool_calls=[]),
    chat("<think>\n\n</think>\n\n"),
    chat_stream([]),
    completions(""),
    native("\u200b\u200b", [4, 4]),
    native("", [151_336], [-0.01]),
    native("", [0], [-0.01]),
    {"choices": []},
]


@pytest.mark.parametrize("reply", EMPTY)
def test_nothing_to_see_is_empty(reply: Any) -> None:
    assert verdict(reply) == Verdict.EMPTY


GARBAGE: list[tuple[str, Any]] = [
    # one token or pair, unasked
    (FRANCE, chat("the " * 30)),
    (FRANCE, chat("Paris is" + " the" * 14, finish="length")),
    (FRANCE, chat("is a is a is a is a is a is a is a is a")),
    (FRANCE, chat("ab" * 16)),
    (FRANCE, chat("." * 36)),
    (FRANCE, chat("0" * 64)),
    (FRANCE, chat("1\n" * 40)),
    (FRANCE, chat("系" * 12)),
    (CHINESE, chat("的" * 15)),
    ("Answer yes or no: is water wet?", chat("yes " * 300, finish="length")),
    ("Write 3 sentences about the sea.", chat("the " * 40)),
    (FRANCE, native(" Paris" * 8, [12366] * 8, [-0.01] * 8, finish="length")),
    (FRANCE, chat(None, reasoning_content="so " * 15, finish="length")),
    (FRANCE, chat_stream([" the"] * 20, "length")),
    (FRANCE, completions(" Paris.", " the" * 20)),
    (FRANCE, chat("The city has many museums and parks. " * 8)),
    (FRANCE, chat("});\n" * 7)),
    # broken bytes
    (FRANCE, chat("The capital \ufffd\ufffd of \ufffd\ufffd\ufffd is \ufffd")),
    (FRANCE, chat("\ufffd" * 8, finish="length")),
    (FRANCE, chat("La cÃ©lÃ¨bre citÃ© franÃ§aise")),
    (FRANCE, chat("Itâ€™s a cityâ€¦")),
    (FRANCE, chat("ĠtheĠcapitalĠofĠFranceĠis")),
    (FRANCE, chat("<0xE4><0xBD><0xA0><0xE5>")),
    # mixed scripts
    (FRANCE, chat("Paris столица 城市 है the ville")),
    (FRANCE, chat("The city 是 of the 首都 on")),
    (FRANCE, chat("这座城市的名字叫做巴黎,它非常美丽。")),
    ("Was ist das?", chat("Das ist ไทย ein Haus 家 und კატა")),
    # unrelated words
    (FRANCE, chat('of , . the in 5 5 to " of of s , ) and - ( the the')),
    (FRANCE, chat("banana quantum sofa lurking tribe yesterday penguin seventeen drill carbon window mistake orbit")),
    (FRANCE, chat("xkqj wvbn pzrt qlmk zzrw bvcx kjhg trwq")),
    (FRANCE, chat("oglob Inject}} 'ref tranny_-> ).\"+ NSMutable @end_$% vect[]; <<>> __ini ::std ==> fooBar} %s")),
    (FRANCE, chat("and the to of and a in the that in and of the of to a the and")),
    (FRANCE, chat("The the capital capital of of France France is is Paris Paris")),
    (FRANCE, chat("The capital ungef ähr vect pił şey mañana être čas")),
    (FRANCE, chat("5 5 3 0 2 8 1 9 0 0 2 7 4 4 1")),
    (FRANCE, chat(". , ; . , - . : . ,")),
    (FRANCE, native(" green lamp of was quickly table seven ox", list(range(20, 28)), [-7.1, -6, -5.5, -8] * 2)),
]


@pytest.mark.parametrize(("prompt", "reply"), GARBAGE)
def test_what_is_no_language_is_garbage(prompt: str, reply: Any) -> None:
    assert verdict(reply, prompt) == Verdict.GARBAGE


def test_nan_goes_before_a_cut_and_an_error_before_nan() -> None:
    cut_and_nan = native(" a", [4], [None], finish=None)
    assert verdict(cut_and_nan) == Verdict.NAN
    assert verdict({**cut_and_nan, "error": {"message": "x"}}) == Verdict.ERROR


def test_the_null_before_an_echoed_prompt_is_no_nan() -> None:
    reply = completions("The Paris.", logprobs={"token_logprobs": [None, -0.1], "tokens": ["The", " Paris"]})
    assert verdict(reply, echo=True) == Verdict.OK
    assert verdict(reply) == Verdict.NAN


def test_a_model_of_random_weights_is_judged_by_its_numbers_only() -> None:
    recorded = (CORPUS / "real" / "http" / "cpu-generate-logprob.http").read_bytes().decode("utf-8", "replace")
    body = recorded.replace("\r\n", "\n").split("\n\n", 1)[1]
    call = Call("x", "generate", 200, {"text": "hello world"}, body)
    assert judge(call).verdict == Verdict.GARBAGE
    assert judge_numbers(call).verdict == Verdict.OK


def test_one_token_with_the_same_number_everywhere_is_dead_even_for_random_weights() -> None:
    def call(logprobs: list[float]) -> Call:
        return Call("x", "generate", 200, {}, native(" the" * 16, [279] * 16, logprobs, finish="length"))

    assert judge_numbers(call([-3.40625] * 16)).verdict == Verdict.GARBAGE
    assert judge_numbers(call([-3.4 - n / 100 for n in range(16)])).verdict == Verdict.OK


# --- what must not matter -----------------------------------------------------------------------------------------

STREAMED = [row for row in LABELLED if isinstance(row["reply"], dict) and row["status"] == 200]
TEXTS = st.sampled_from(["the " * 30, " Paris. It lies on the Seine.", "!" * 40, "Name 系統 niż ಕ", "", "+" * 50])


@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_chunking_a_stream_never_changes_the_verdict(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert verdict(chat(text)) == verdict(chat_stream(pieces))


@given(row=st.sampled_from(STREAMED), seed=st.randoms())
def test_order_of_keys_and_unknown_keys_never_change_the_verdict(row: dict[str, Any], seed: Any) -> None:
    assert judge(_call(row)).verdict == judge(_call({**row, "reply": _shuffled(row["reply"], seed)})).verdict


def _shuffled(value: Any, seed: Any) -> Any:
    if isinstance(value, list):
        return [_shuffled(v, seed) for v in value]
    if not isinstance(value, dict):
        return value
    items = [*((k, _shuffled(v, seed)) for k, v in value.items()), ("unknown_key", {"x": [1, None]}), ("new", None)]
    seed.shuffle(items)
    return dict(items)


@given(st.text() | st.binary() | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x)))
def test_no_body_whatever_makes_the_judge_raise(body: Any) -> None:
    assert judge(Call("x", "chat", 200, {}, body)).verdict in Verdict


@given(cut=st.integers(0, 400), row=st.sampled_from(STREAMED))
def test_a_cut_body_is_never_called_sound(cut: int, row: dict[str, Any]) -> None:
    body = json.dumps(row["reply"])
    part = body[: min(cut, len(body) - 1)]
    assert judge(_call({**row, "reply": part})).verdict != Verdict.OK
