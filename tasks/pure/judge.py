"""The judge: what one reply of the served API turned out to be (definitions: LABELS.md, "Labels of the replies")."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from settings.words import Verdict
from tasks.pure.prose import why_no_language
from tasks.pure.repetition import repetition
from tasks.pure.reply import Asked, Call, Choice, Reply, asked, read_reply

__all__ = ["SEVERITY", "Call", "Judged", "judge", "judge_numbers", "worst"]

SEVERITY = tuple(Verdict)  # the order in which the rules are asked, and in which a suite names its failure

_ZEROS = 3  # ids 0 in a row at the end; two "!" as two tokens may be meant, in a vocabulary where id 0 is "!"
_BANGS = 8  # "!" in a row at the end of a text whose ids we do not know
_LIKELY_GREEDY = -4.0  # a healthy greedy token has a mean log-probability of -0.1 to -1.5; a salad seen had -6.4
_LIKELY_SAMPLED = -7.0
_ENOUGH = 8  # tokens below which a mean says nothing


@dataclass(frozen=True, slots=True)
class Judged:
    verdict: Verdict
    why: str


def judge(call: Call) -> Judged:
    """The first verdict of LABELS.md that fits this reply. Several choices in one reply: the worst of them."""
    return _judge(call, why_no_language)


def judge_numbers(call: Call) -> Judged:
    """The same for a model with random weights, of which no language can be expected: only numbers and counts speak.

    Such a model does run into loops; a loop counts only where every position has the same token *and* the same
    log-probability, which no live computation gives. Empty is a reply without a single token.
    """
    return _judge(call, None)


def worst(judged: Sequence[Judged]) -> Judged:
    return min(judged, key=lambda j: SEVERITY.index(j.verdict))


def _judge(call: Call, language: Callable[[str, str, bool], str | None] | None) -> Judged:
    if call.status != 200:
        return Judged(Verdict.ERROR, call.lost or _status(call))
    reply, want = read_reply(call), asked(call.request)
    if reply.error is not None:
        return Judged(Verdict.ERROR, f"an error in the body: {reply.error}")
    stops = {c.finish for c in reply.choices if c.finish in ("abort", "error")}
    if stops:
        return Judged(Verdict.ERROR, f"the finish reason is {stops.pop()}")
    if nan := [j for c in reply.choices if (j := _nan(c, want))]:
        return nan[0]
    if cut := _cut(reply, want):
        return Judged(Verdict.TRUNCATED, cut)
    if not reply.choices:
        return Judged(Verdict.EMPTY, "status 200 and no answer in the body")
    if language is None:
        return worst([_alive(c) for c in reply.choices])
    return worst([_text(c, want, language) for c in reply.choices])


def _status(call: Call) -> str:
    said = read_reply(call).error
    return f"HTTP status {call.status}" + (f": {said}" if said else "")


def _nan(choice: Choice, want: Asked) -> Judged | None:
    why = _nan_numbers(choice) or _nan_tokens(choice, want)
    return Judged(Verdict.NAN, why) if why else None


def _nan_numbers(choice: Choice) -> str | None:
    bad = [i for i, n in enumerate(choice.logprobs) if math.isnan(n)]
    if bad:
        count = len(choice.logprobs)
        return f"{len(bad)} of {count} log-probabilities are no finite numbers, from token {bad[0] + 1} on"
    if vocabulary := _uniform(choice):
        return f"every log-probability is -log({vocabulary}): all tokens of the vocabulary are equally likely"
    return None


def _uniform(choice: Choice) -> int | None:
    """The size of the vocabulary when all log-probabilities say "any token is as likely as any other".

    All equal, and either below -log(30000), where no real prediction of several tokens in a row lies, or the exact log
    of a multiple of 64 (sizes are padded so). bfloat16 rounds log(151936) = 11.931 to 11.9375, hence the tolerance.
    """
    if len(choice.logprobs) < 2 or max(choice.logprobs) - min(choice.logprobs) > 2e-3:
        return None
    size = math.exp(min(-choice.logprobs[0], 30.0))
    if size > 1e7 or size <= max(choice.ids, default=0) * 0.9:
        return None
    padded = 64 * round(size / 64)
    if size > 30_000 or (padded >= 256 and abs(size - padded) / padded < 1e-4):
        return round(size)
    return None


def _nan_tokens(choice: Choice, want: Asked) -> str | None:
    ids = list(choice.ids)
    text = "".join(choice.visible.split())
    if ids and choice.finish == "stop" and ids[-1] == 0 and (choice.matched in (0, None) or not text):
        ids.pop()  # the end token itself
    zeros = next((n for n, i in enumerate(reversed(ids)) if i != 0), len(ids))
    if zeros >= _ZEROS or (zeros and zeros == len(ids)):
        at = len(ids) - zeros
        return f"all {zeros} tokens are id 0" if not at else f"all tokens from the {at + 1}th on are id 0"
    bangs = len(text) - len(text.rstrip("!"))
    if bangs and (bangs == len(text) or bangs >= _BANGS) and not repetition(text[-bangs:], want.gist).wanted:
        return "the text is nothing but '!'" if bangs == len(text) else f"the text ends in {bangs} times '!'"
    return None


def _cut(reply: Reply, want: Asked) -> str | None:
    if reply.cut:
        return reply.cut
    if any(not c.finish for c in reply.choices):
        return "no finish reason at the end"
    if want.ignore_eos and want.max_tokens:
        for c in reply.choices:
            if c.finish == "length" and c.count is not None and c.count < want.max_tokens:
                return f"stopped by length after {c.count} of {want.max_tokens} tokens although ignore_eos was set"
    return None


def _text(choice: Choice, want: Asked, language: Callable[[str, str, bool], str | None]) -> Judged:
    text = choice.visible
    if not text:
        return Judged(Verdict.EMPTY, "no visible text" + (f", {choice.count} tokens" if choice.count else ""))
    if choice.tool_call:
        return Judged(Verdict.OK, "a tool call")
    if len(choice.ids) >= 6 and len(set(choice.ids)) == 1 and not repetition(text, want.gist).wanted:
        return Judged(Verdict.GARBAGE, f"token {choice.ids[0]} at each of {len(choice.ids)} positions")
    if why := language(choice.answer, want.gist, False) or language(choice.thought, want.gist, True):
        return Judged(Verdict.GARBAGE, why)
    if why := _unlikely(choice, want):
        return Judged(Verdict.GARBAGE, why)
    where = "" if choice.answer.strip() else ", all in the reasoning"
    return Judged(Verdict.OK, f"text that fits the request{where}")


def _unlikely(choice: Choice, want: Asked) -> str | None:
    """A model that is sure of nothing: salad, whatever the language."""
    if len(choice.logprobs) < _ENOUGH:
        return None
    mean = math.fsum(choice.logprobs) / len(choice.logprobs)
    floor = _LIKELY_SAMPLED if want.temperature else _LIKELY_GREEDY
    return f"unlikely tokens: mean log-probability {mean:.1f}, below {floor:.0f}" if mean < floor else None


def _alive(choice: Choice) -> Judged:
    if not choice.count and not choice.visible:
        return Judged(Verdict.EMPTY, "no token at all")
    n = len(choice.ids)
    if n >= _ENOUGH and len(set(choice.ids)) == 1 and (len(choice.logprobs) < n or len(set(choice.logprobs)) == 1):
        return Judged(Verdict.GARBAGE, f"token {choice.ids[0]} with the same numbers at each of {n} positions")
    return Judged(Verdict.OK, f"{choice.count or 0} tokens" + (", finite numbers" if choice.logprobs else ""))
