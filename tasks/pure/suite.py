"""What a whole decode suite says: each probe's verdict, and the figures that only many replies together show."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from settings.suite import DecodeSuite, Probe
from settings.words import Verdict
from tasks.pure.decode_page import shown
from tasks.pure.judge import SEVERITY, Judged, judge, judge_numbers, worst
from tasks.pure.prose import entropy_bits
from tasks.pure.record import ReplyVerdict, SuiteFigures
from tasks.pure.repetition import looped, repeated, repetition
from tasks.pure.reply import Call, Choice, asked, read_reply
from tasks.pure.scripts import mixed_scripts, scripts_in

__all__ = ["KIND_OF", "Asking", "figures", "first_failure", "judge_probe", "judge_suite", "judged_calls", "wilson"]

KIND_OF: Mapping[Verdict, str] = {
    Verdict.NAN: "nan",
    Verdict.ERROR: "reply_error",
    Verdict.TRUNCATED: "truncated",
    Verdict.EMPTY: "empty",
    Verdict.GARBAGE: "garbage",
}
# Over a suite nan goes first: a request that failed beside it is its consequence more often than its cause.
_ORDER = (Verdict.NAN, *(v for v in SEVERITY if v is not Verdict.NAN))
_SHOWN = 160  # characters of an answer in the record
_ONE_TOKEN = 0.9  # share of one id among all tokens of answers to different prompts


@dataclass(frozen=True, slots=True)
class Asking:
    """A probe as it was really sent: its calls, and the words that a right answer holds."""

    probe: Probe
    calls: tuple[Call, ...]
    expect: tuple[str, ...] = ()


def judge_probe(asking: Asking, mode: str) -> ReplyVerdict:
    """The worst verdict of the probe's calls, and the call that it is of; `mode`: the suite's judge."""
    judged = judged_calls(asking, mode)
    result = worst([j for _, j in judged])
    call = next(c for c, j in judged if j is result)
    alike = sum(j.verdict is result.verdict for _, j in judged)
    many = f"{alike} of {len(judged)}: " if len(judged) > 1 and result.verdict is not Verdict.OK else ""
    return ReplyVerdict(
        id=asking.probe.id, verdict=result.verdict, why=many + result.why, calls=len(judged), **shown(call)
    )


def judged_calls(asking: Asking, mode: str) -> list[tuple[Call, Judged]]:
    """Each call with its verdict; `mode` is the suite's judge, "text" or "numbers"."""
    return [(call, _judge_call(call, asking, mode)) for call in asking.calls]


def judge_suite(suite: DecodeSuite, askings: Sequence[Asking]) -> tuple[ReplyVerdict, ...]:
    """Verdicts on all replies together, by name `suite.…`; none when nothing is wrong."""
    found = figures(askings)
    said: list[tuple[str, str]] = []
    if found.agreement is not None and found.agreement < suite.min_agreement:
        said.append(("agreement", f"greedy repeats agree in {found.agreement:.0%} of their tokens"))
    text = suite.judge == "text"
    if text and found.accuracy_high is not None and found.accuracy_high < suite.min_accuracy:
        high = f"{found.accuracy_high:.0%}"
        said.append(("accuracy", f"{found.right} of {found.expected} answers right, at most {high} by its interval"))
    prompts = {asked(c.request).prompt for a in askings for c in a.calls}
    if text and len(prompts) >= 3 and found.tokens >= 48 and (found.one_token_share or 0) > _ONE_TOKEN:
        said.append(("one-token", f"one token makes up {found.one_token_share:.0%} of all answers"))
    return tuple(ReplyVerdict(id=f"suite.{name}", verdict=Verdict.GARBAGE, why=why) for name, why in said)


def first_failure(verdicts: Iterable[ReplyVerdict]) -> ReplyVerdict | None:
    """The failing verdict that explains most: nan, then in the order of LABELS.md; None when all passed."""
    failing = [v for v in verdicts if isinstance(v.verdict, Verdict) and v.verdict is not Verdict.OK]
    return min(failing, key=lambda v: _ORDER.index(Verdict(v.verdict)), default=None)


def figures(askings: Sequence[Asking]) -> SuiteFigures:
    """The figures over all replies; pure counting, no verdict."""
    answered = [call for a in askings for call in a.calls if call.status == 200]
    said = [(c, asked(call.request).gist) for call in answered for c in read_reply(call).choices]
    choices = [c for c, _ in said]
    logprobs = [n for c in choices for n in c.logprobs]
    finite = [n for n in logprobs if math.isfinite(n)]
    ids = Counter(i for c in choices for i in c.ids)
    text = " ".join(c.text for c in choices)
    answers = [_is_right(call, a.expect) for a in askings if a.expect for call in a.calls]
    low, high = wilson(sum(answers), len(answers)) if answers else (None, None)
    return SuiteFigures(
        replies=len(choices),
        tokens=sum(c.count or 0 for c in choices),
        bad_logprob_share=1 - len(finite) / len(logprobs) if logprobs else None,
        mean_logprob=math.fsum(finite) / len(finite) if finite else None,
        one_token_share=max(ids.values()) / ids.total() if ids else None,
        agreement=_agreement(askings),
        right=sum(answers),
        expected=len(answers),
        accuracy_low=low,
        accuracy_high=high,
        replacement_share=text.count("\ufffd") / len(text) if text else None,
        scripts=tuple(s for s, _ in scripts_in(text).most_common()),
        mixed_scripts=sum(mixed_scripts(c.answer, gist) is not None for c, gist in said),
        looping=sum(_loops(c.answer, gist) for c, gist in said),
        entropy_bits=entropy_bits(text) if text.strip() else None,
    )


def wilson(right: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share. Source: E. B. Wilson, JASA 22 (1927), score interval."""
    share = right / of
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - spread) / (1 + z * z / of)), min(1.0, (middle + spread) / (1 + z * z / of))


def _loops(text: str, prompt: str) -> bool:
    return (looped(text, prompt) or repeated(text, repetition(text, prompt))) is not None


def _judge_call(call: Call, asking: Asking, mode: str) -> Judged:
    probe = asking.probe
    judged = judge_numbers(call) if mode == "numbers" else judge(call)
    if judged.verdict is not Verdict.OK:
        return judged
    count = _tokens(call)
    if probe.ignore_eos and count is not None and count < probe.max_new_tokens:
        return Judged(Verdict.TRUNCATED, f"{count} of {probe.max_new_tokens} tokens came although ignore_eos was set")
    if mode == "text" and probe.must and asking.expect and not _is_right(call, asking.expect):
        wanted = " or ".join(f"'{w}'" for w in asking.expect)
        return Judged(Verdict.GARBAGE, f"the answer does not hold {wanted}")
    return judged


def _tokens(call: Call) -> int | None:
    counts = [c.count for c in read_reply(call).choices]
    return sum(n for n in counts if n is not None) if counts and None not in counts else None


def _is_right(call: Call, expect: Sequence[str]) -> bool:
    said = " ".join(c.text for c in read_reply(call).choices).casefold() if call.status == 200 else ""
    return any(word.casefold() in said for word in expect)


def _agreement(askings: Sequence[Asking]) -> float | None:
    """Mean over greedy calls of one probe with equal prompts, each against the first."""
    shares: list[float] = []
    for asking in askings:
        groups: dict[str, list[Choice]] = {}
        for call in asking.calls:
            if call.status == 200 and asked(call.request).greedy:
                groups.setdefault(asked(call.request).prompt, []).extend(read_reply(call).choices)
        for choices in groups.values():
            shares += [_alike(choices[0], other) for other in choices[1:]]
    return math.fsum(shares) / len(shares) if shares else None


def _alike(a: Choice, b: Choice) -> float:
    left: Sequence[int | str] = a.ids or a.text.split()
    right: Sequence[int | str] = b.ids or b.text.split()
    pairs = list(itertools.zip_longest(left, right))
    return sum(x == y for x, y in pairs) / len(pairs) if pairs else 1.0
