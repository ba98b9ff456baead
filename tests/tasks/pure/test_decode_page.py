"""What is shown of a reply, and the line that keeps all of it."""

import json

from settings.words import Stage, Verdict
from tasks.pure.decode_page import DECODE_COLUMNS, call_line, decode_rows, figures_note, shown
from tasks.pure.judge import judge
from tasks.pure.record import ReplyVerdict
from tasks.pure.reply import Call
from tasks.pure.suite import figures
from tests.tasks.pure.reply_forms import native

ASKED = {"text": "The capital city of France is", "sampling_params": {"temperature": 0}}
NAN = Call("p.1", "generate", 200, ASKED, native(" Paris!!!", [12366, 0, 0, 0], [-0.5, None, None, float("nan")]))


def test_prompt_reply_and_numbers_are_those_of_the_call() -> None:
    assert {
        "prompt": "The capital city of France is", "reply": " Paris!!!", "tokens": 4, "mean_logprob": -0.5,
        "bad_logprob_share": 0.75,
    } == shown(NAN)  # fmt: skip


def test_of_a_long_prompt_both_ends_are_shown() -> None:
    prompt = f"Remember this. {'filler ' * 5_000}What is the code?"
    cut = shown(Call("p", "generate", 200, {"text": prompt}, native(" 7")))["prompt"]
    assert (True, True) == (cut.startswith("Remember this."), cut.endswith("What is the code?"))
    assert len(cut) < 150


def test_of_a_request_without_an_answer_it_is_shown_what_the_connection_did() -> None:
    lost = shown(Call("p", "generate", 0, ASKED, None, "no answer within its time"))
    assert ("no answer within its time", None, None) == (lost["reply"], lost["tokens"], lost["mean_logprob"])


def test_a_line_is_strict_json_and_holds_the_whole_call_so_that_it_can_be_judged_again() -> None:
    text = call_line(Stage.DECODE, "p", NAN, judge(NAN))
    assert "\n" not in text
    line = json.loads(text, parse_constant=lambda name: AssertionError(name))
    assert ("decode", "p", "nan", 200) == (line["stage"], line["probe"], line["verdict"], line["status"])
    again = judge(Call(line["id"], line["api"], line["status"], line["request"], line["reply"]))
    assert Verdict.NAN is again.verdict


def test_a_row_has_a_cell_for_each_column_and_nothing_where_nothing_was_measured() -> None:
    (row,) = decode_rows([ReplyVerdict(id="prompt-64k", verdict="not_run", why="no room")])
    assert DECODE_COLUMNS == tuple(row)
    assert ("not_run", "no room", "", "") == (row["verdict"], row["why"], row["tokens"], row["bad logprobs"])


def test_a_suite_without_replies_is_still_a_sentence() -> None:
    assert "All of the suite: 0 replies, 0 tokens; 0 loops, 0 with mixed scripts" == figures_note(figures([]))
