"""What a whole suite says, from replies written out here."""

from typing import Any

import pytest

from settings.suite import DecodeSuite, Probe
from settings.words import Verdict
from tasks.pure.record import ReplyVerdict
from tasks.pure.reply import Call
from tasks.pure.suite import Asking, figures, first_failure, judge_probe, judge_suite, wilson
from tests.tasks.pure.reply_forms import native

GREEDY = {"sampling_params": {"temperature": 0}}


def _asking(replies: list[Any], expect: tuple[str, ...] = (), prompts: list[str] | None = None, **probe: Any) -> Asking:
    made = Probe(id="p", prompt="x", **probe)
    texts = prompts or ["The capital of France is"] * len(replies)
    calls = [
        Call(f"p.{n}", "generate", 200, {"text": text, **GREEDY}, reply)
        for n, (text, reply) in enumerate(zip(texts, replies, strict=True))
    ]
    return Asking(made, tuple(calls), expect)


def _suite(**values: Any) -> DecodeSuite:
    return DecodeSuite(why="a test", probe=(Probe(id="p", prompt="x"),), **values)


def test_the_worst_reply_of_a_batch_is_the_probes_verdict_and_is_counted() -> None:
    said = judge_probe(_asking([native(" Paris."), native("!!!!"), native("!!!!")]), "text")
    assert (Verdict.NAN, "2 of 3: the text is nothing but '!'") == (said.verdict, said.why)


def test_a_sensible_answer_without_the_expected_word_is_garbage_where_it_must_hold_it() -> None:
    replies = [native(" a large city on a river.")]
    assert Verdict.GARBAGE == judge_probe(_asking(replies, ("Paris",)), "text").verdict
    assert Verdict.OK == judge_probe(_asking(replies, ("Paris",), must=False), "text").verdict
    assert Verdict.OK == judge_probe(_asking(replies, ("Paris",)), "numbers").verdict


def test_fewer_tokens_than_asked_are_truncated_even_if_the_reply_says_stop() -> None:
    said = judge_probe(_asking([native(" Paris is", [4, 5, 6])], ignore_eos=True, max_new_tokens=8), "numbers")
    assert (Verdict.TRUNCATED, True) == (said.verdict, said.why.startswith("3 of 8 tokens"))


def test_agreement_compares_equal_greedy_requests_position_by_position() -> None:
    same = figures([_asking([native("a b c d", [1, 2, 3, 4]), native("a b x d", [1, 2, 9, 4])])])
    assert 0.75 == same.agreement
    others = figures([_asking([native("a", [1]), native("b", [2])], prompts=["one", "two"])])
    assert others.agreement is None


def test_greedy_repeats_that_disagree_fail_the_suite_only_below_its_limit() -> None:
    askings = [_asking([native("north wind blows", [1, 2, 3]), native("south sea waits", [4, 5, 6])])]
    assert ["suite.agreement"] == [v.id for v in judge_suite(_suite(min_agreement=0.25), askings)]
    assert () == judge_suite(_suite(min_agreement=0.0), askings)


def test_accuracy_fails_only_when_its_whole_interval_lies_below() -> None:
    wrong = [_asking([native(" a river.")], ("Paris",), must=False)]
    assert () == judge_suite(_suite(min_accuracy=0.5), wrong * 3)
    assert ["suite.accuracy"] == [v.id for v in judge_suite(_suite(min_accuracy=0.5), wrong * 4)]


def test_one_token_in_all_answers_fails_a_text_suite() -> None:
    loops = [native(" so" * 18, [9] * 18) for _ in range(3)]
    askings = [_asking(loops, prompts=["a", "b", "c"])]
    assert "suite.one-token" in [v.id for v in judge_suite(_suite(), askings)]
    assert () == judge_suite(_suite(judge="numbers"), askings)


def test_bad_log_probabilities_are_counted_over_all_replies() -> None:
    found = figures([_asking([native("a b", [1, 2], [-0.5, None]), native("a b", [1, 2], [-1.5, -1.0])])])
    assert (0.25, -1.0) == (found.bad_logprob_share, found.mean_logprob)


def test_loops_and_mixed_scripts_are_counted_over_all_replies() -> None:
    mixed = native(" кот 海洋 shadow वाहन ليل tensor 하늘 βίος ocean 火车 лодка מים", list(range(1, 13)))
    loop = native(" on and on" * 12, list(range(1, 37)))
    found = figures([_asking([mixed, loop, native(" Paris.")])])
    assert (1, 1, 3) == (found.mixed_scripts, found.looping, found.replies)


def test_a_probe_shows_the_call_that_decided() -> None:
    said = judge_probe(_asking([native(" Paris."), native("!!!!")], prompts=["one is", "two is"]), "text")
    assert (2, "two is", "!!!!") == (said.calls, said.prompt, said.reply)


def test_nothing_measured_is_none() -> None:
    found = figures([])
    assert [None] * 4 == [found.agreement, found.bad_logprob_share, found.accuracy_low, found.entropy_bits]


@pytest.mark.parametrize(
    ("verdicts", "first"),
    [
        ([Verdict.OK], None),
        ([Verdict.OK, "not_run"], None),
        ([Verdict.GARBAGE, Verdict.EMPTY], Verdict.EMPTY),
        ([Verdict.ERROR, Verdict.NAN], Verdict.NAN),
        ([Verdict.TRUNCATED, Verdict.ERROR], Verdict.ERROR),
    ],
)
def test_the_failure_that_explains_most_is_named(verdicts: list[Any], first: Verdict | None) -> None:
    failed = first_failure(ReplyVerdict(id="p", verdict=v) for v in verdicts)
    assert first == (failed.verdict if failed else None)


def test_the_interval_is_wilsons() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-3)


def test_a_reply_without_any_choice_compares_to_nothing() -> None:
    probe = Probe(id="p", prompt="x", repeat=2)
    empty = tuple(
        Call("p", "generate", 200, {"text": "x", "sampling_params": {"temperature": 0}}, "[]") for _ in range(2)
    )
    assert figures([Asking(probe, empty)]).agreement is None
