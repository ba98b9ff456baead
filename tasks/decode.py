"""The decode stage: runs a suite of probes against the served API and says what the replies turned out to be."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from settings.suite import DecodeSuite, Probe
from settings.words import Verdict
from tasks.api import Limits, ask, is_gone, read_limits, request_of
from tasks.deadline import Deadline
from tasks.pure.prompts import FILLER_SAMPLE, hidden_fact
from tasks.pure.record import ReplyVerdict, SuiteFigures
from tasks.pure.reply import Call
from tasks.pure.suite import KIND_OF, Asking, figures, first_failure, judge_probe, judge_suite

__all__ = ["DecodeReport", "decode"]

_NO_TIME = "no time was left"
_SPARE_TOKENS = 16  # the server keeps a few of the context for itself (6 in 0.5.23: max_req_input_len)
_USUAL_CHARS_PER_TOKEN = 4.0  # where the server does not count our text
_MOST_CHARS_PER_TOKEN = 8.0  # English has 4 to 5; a server that counts less is wrong, and the prompt would be huge


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """A whole suite. `kind` is None when it passed, else nan, garbage, empty, truncated, reply_error,
    or hang when the suite's time ran out.

    `server_gone`: nothing listened any more after a request failed; the log says why, and decides (contracts §1).
    """

    verdicts: tuple[ReplyVerdict, ...]
    calls: tuple[Call, ...]
    kind: str | None
    why: str
    server_gone: bool
    agreement: float | None
    figures: SuiteFigures
    askings: tuple[Asking, ...] = ()


def _unheard(_: ReplyVerdict) -> None:
    return None


def decode(
    client: httpx.Client, suite: DecodeSuite, *, deadline: Deadline, on_probe: Callable[[ReplyVerdict], None] = _unheard
) -> DecodeReport:
    """Run the probes in order; stop at the first NaN and when the server is gone, for all after it would show the same.

    Raises: HostError when the host is lost; whatever the server does is in the report.
    """
    limits = read_limits(client, deadline=deadline)
    sizes = _Sizes(client, limits, suite.request_s)
    verdicts: list[ReplyVerdict] = []
    askings: list[Asking] = []
    gone, stopped_by = False, ""
    for probe in suite.probe:
        if not stopped_by and deadline.passed:
            stopped_by = _NO_TIME
        asking = stopped_by or _ask_probe(client, probe, sizes, limits, deadline)
        if isinstance(asking, str):
            verdict = ReplyVerdict(id=probe.id, verdict="not_run", why=asking)
        else:
            askings.append(asking)
            verdict = judge_probe(asking, suite.judge)
            gone = any(c.lost for c in asking.calls) and is_gone(client, deadline=deadline)
            if gone:
                stopped_by = f"the server was gone after {probe.id}"
            elif verdict.verdict is Verdict.NAN:
                stopped_by = f"left out after {probe.id} was nan"
        verdicts.append(verdict)
        on_probe(verdict)
    if not gone:
        verdicts += judge_suite(suite, askings)
    found = figures(askings)
    kind, why = _outcome(verdicts, stopped_by)
    calls = tuple(c for a in askings for c in a.calls)
    return DecodeReport(tuple(verdicts), calls, kind, why, gone, found.agreement, found, tuple(askings))


def _outcome(verdicts: list[ReplyVerdict], stopped_by: str) -> tuple[str | None, str]:
    failed = first_failure(verdicts)
    if failed:
        return KIND_OF[Verdict(failed.verdict)], f"{failed.id}: {failed.why}"
    if stopped_by:
        return "hang" if stopped_by == _NO_TIME else "reply_error", stopped_by
    ran = [v for v in verdicts if v.verdict != "not_run"]
    if not ran:
        return "reply_error", "no probe could be run"
    return None, f"{len(ran)} probes passed"


def _ask_probe(
    client: httpx.Client, probe: Probe, sizes: "_Sizes", limits: Limits, deadline: Deadline
) -> Asking | str:
    """The probe's calls, or the reason why it cannot be run on this server."""
    if probe.prompt_tokens is not None:
        tokens = sizes.fitting(probe)
        if isinstance(tokens, str):
            return tokens
        made = hidden_fact(tokens, sizes.chars_per_token(deadline), seed=0)
        prompts: tuple[str, ...] = (made.prompt,)
        expect = probe.expect or (made.answer,)
    else:
        room = limits.room()
        if room is not None and probe.max_new_tokens + _SPARE_TOKENS > room:
            return f"{probe.max_new_tokens} tokens asked, the server has room for {room} a request"
        prompts, expect = probe.prompts or (probe.prompt or "",), probe.expect
    calls: list[Call] = []
    many = probe.batch * probe.repeat > 1
    with ThreadPoolExecutor(probe.batch, thread_name_prefix="probe") as pool:
        for turn in range(probe.repeat):
            turn_ends = deadline.sooner(sizes.request_s)
            asked = [
                pool.submit(
                    ask,
                    client,
                    f"{probe.id}.{turn * probe.batch + n + 1}" if many else probe.id,
                    probe.api,
                    request_of(probe, prompts[n % len(prompts)], limits.model),
                    deadline=turn_ends,
                )
                for n in range(probe.batch)
            ]
            calls += [future.result() for future in asked]
    return Asking(probe, tuple(calls), expect)


class _Sizes:
    """How long a made prompt may be and how long its text has to be; the server itself counts a sample once."""

    def __init__(self, client: httpx.Client, limits: Limits, request_s: float) -> None:
        self._client, self._room, self.request_s = client, limits.room(), request_s
        self._counted: float | None = None

    def fitting(self, probe: Probe) -> int | str:
        """Tokens for the probe's prompt, or why none fit."""
        wanted = probe.prompt_tokens or 0
        if self._room is None:
            return wanted
        room = self._room - probe.max_new_tokens - _SPARE_TOKENS
        if wanted * 1.03 <= room:  # our count is an estimate
            return wanted
        if probe.at_least_tokens is not None and probe.at_least_tokens * 1.03 <= room:
            return int(room / 1.03)
        return f"{wanted} prompt tokens asked, the server has room for {self._room} a request"

    def chars_per_token(self, deadline: Deadline) -> float:
        if self._counted is None:
            request = {"text": FILLER_SAMPLE, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
            call = ask(self._client, "count", "generate", request, deadline=deadline.sooner(self.request_s))
            meta = call.reply.get("meta_info") if call.status == 200 and isinstance(call.reply, dict) else None
            count = meta.get("prompt_tokens") if isinstance(meta, dict) else None
            counted = len(FILLER_SAMPLE) / count if isinstance(count, int) and count > 0 else _USUAL_CHARS_PER_TOKEN
            self._counted = min(counted, _MOST_CHARS_PER_TOKEN)
        return self._counted
