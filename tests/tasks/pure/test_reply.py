"""Whatever JSON stands where a request or a reply belongs, there is a verdict and no exception."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settings.words import Verdict
from tasks.pure.judge import judge, judge_numbers
from tasks.pure.reply import Call, asked, read_reply

KEYS = st.sampled_from(
    [
        "choices", "message", "delta", "content", "text", "index", "finish_reason", "logprobs", "token_logprobs",
        "logprob", "tool_calls", "refusal", "usage", "completion_tokens", "meta_info", "output_ids", "error", "object",
        "output_token_logprobs", "type", "matched", "length", "reasoning", "messages", "prompt", "sampling_params",
        "max_tokens", "max_new_tokens", "temperature", "ignore_eos", "echo", "matched_stop",
    ]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
HUGE = st.sampled_from([10**400, -(10**400), 1e308, "NaN", "stop", "length", "[DONE]", "data: {", "{", "[[["])
ANY_JSON = st.recursive(
    SCALARS | HUGE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=6),
    max_leaves=25,
)
OBJECTS = st.dictionaries(KEYS, ANY_JSON, max_size=6)
DEEP = "[" * 100_000


def _call(request: dict[str, Any], reply: Any) -> Call:
    return Call("x", "generate", 200, request, reply)


@settings(max_examples=150, deadline=None)
@given(OBJECTS, ANY_JSON | OBJECTS)
def test_any_json_as_request_and_reply_gives_a_verdict(request: dict[str, Any], reply: Any) -> None:
    for body in (reply, json.dumps(reply), f"data: {json.dumps(reply)}\n\n"):
        call = _call(request, body)
        assert {judge(call).verdict, judge_numbers(call).verdict} <= set(Verdict)


@settings(max_examples=80, deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=3), st.sampled_from(["message", "delta"]))
def test_any_json_inside_a_choice_gives_a_verdict(choices: list[dict[str, Any]], key: str) -> None:
    for reply in ({"choices": choices}, {"choices": [{key: choices[0]}]}, {"meta_info": choices[0], "text": "a"}):
        assert judge(_call({}, reply)).verdict in set(Verdict)


@pytest.mark.parametrize("reply", [DEEP, '{"choices":' + DEEP, "data: " + DEEP, 'data: {"text":' + DEEP])
def test_brackets_without_end_are_told_and_not_followed(reply: str) -> None:
    assert judge(_call({}, reply)).verdict in (Verdict.TRUNCATED, Verdict.ERROR)


def test_messages_that_are_no_list_hold_no_prompt() -> None:
    assert asked({"messages": 3}).prompt == ""
    assert read_reply(_call({"messages": 3}, [1, None])).error == "the body is no object: 1"
