"""One shape for every form in which the served API answers: native, chat, completions; whole, streamed or cut."""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.pure.mend import mended_json

__all__ = ["Asked", "Call", "Choice", "Reply", "asked", "read_reply"]

_DISGUISED_INF = -9999.0  # vLLM writes this for -inf, since JSON has none (its OpenAI server, `max(logprob, -9999.0)`)
_GIST_CHARS = 4_000
_LARGEST = 2**63  # a larger integer is no id and no count, and no float either
_MARKUP = re.compile(r"<\|[^|<>]{1,40}\|>|</?think>|</?s>|[\u200b-\u200f\u2060\ufeff\x00]")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the served API and what came back.

    `reply` is the parsed JSON body, or the raw text where the body is a stream, is cut or is no JSON. `status` is 0
    when no answer came at all; `lost` says what the connection did.
    """

    id: str
    api: str  # "generate", "chat" or "completions"; read_reply looks at the reply itself
    status: int
    request: Mapping[str, Any]
    reply: Any
    lost: str = ""
    wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asked for, whichever API's names it used."""

    prompt: str
    max_tokens: int | None
    ignore_eos: bool
    temperature: float | None
    echo: bool

    @property
    def gist(self) -> str:
        """Both ends of the prompt: what is asked stands there, and 128k tokens would be slow to look through."""
        cut = _GIST_CHARS // 2
        return self.prompt if len(self.prompt) <= _GIST_CHARS else f"{self.prompt[:cut]}\n{self.prompt[-cut:]}"

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer. `logprobs` are those of the chosen tokens: nan stands for all that is no finite number."""

    answer: str = ""  # what a person is meant to see; a tool call counts as such
    thought: str = ""  # the reasoning before it
    tool_call: bool = False
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str | None = None
    matched: Any = None
    tokens: int | None = None  # completion tokens as the server counted them
    native: bool = False

    @property
    def text(self) -> str:
        """All that came, in the order in which it was generated."""
        return self.thought + self.answer

    @property
    def visible(self) -> str:
        """The text without white space around it, special tokens and characters of no width."""
        return _MARKUP.sub("", self.text).strip()

    @property
    def count(self) -> int | None:
        """Completion tokens: the server's count, or the ids that came."""
        if self.tokens is not None:
            return self.tokens
        return len(self.ids) or len(self.logprobs) or None


@dataclass(frozen=True, slots=True)
class Reply:
    choices: tuple[Choice, ...] = ()
    error: str | None = None
    cut: str | None = None  # how we know that something is missing at the end
    blank: bool = False  # a body of no bytes


def asked(request: Mapping[str, Any]) -> Asked:
    """The request in one shape. Source: SGLang's io_struct.py (native) and OpenAI's API (chat, completions)."""
    params = request.get("sampling_params")
    flat: dict[str, Any] = {**request, **(params if isinstance(params, Mapping) else {})}
    counts = (flat.get(k) for k in ("max_new_tokens", "max_completion_tokens", "max_tokens"))
    temperature = flat.get("temperature")
    heat = temperature if isinstance(temperature, float) else _count(temperature)
    return Asked(
        prompt=_prompt(request),
        max_tokens=next((c for c in map(_count, counts) if c is not None), None),
        ignore_eos=bool(flat.get("ignore_eos")),
        temperature=None if heat is None else float(heat),
        echo=bool(flat.get("echo")),
    )


def read_reply(call: Call) -> Reply:
    """The reply in one shape. Never raises: what cannot be read is an error or a cut in the value."""
    body, echo = call.reply, asked(call.request).echo
    if body is None or body == "" or body == b"":
        return Reply(blank=True)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if not isinstance(body, str):
        return _from_bodies([body], echo)
    if not body.strip():
        return Reply(blank=True)
    if re.match(r"\s*(data|event|id|retry)?:", body):
        return _from_stream(body, echo)
    if body.lstrip()[0] not in "{[":
        return Reply(error=f"the body is neither JSON nor an event stream: {_short(body)}")
    try:
        return _from_bodies([json.loads(body, strict=False)], echo)
    except (ValueError, RecursionError):
        rest = _mended(body)
        whole = _from_bodies([rest] if rest else [], echo)
        return Reply(whole.choices, whole.error, "the JSON body ends in the middle")


def _prompt(request: Mapping[str, Any]) -> str:
    for key in ("prompt", "text"):
        value = request.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, Sequence) and value and all(isinstance(v, str) for v in value):
            return "\n".join(value)
    messages = request.get("messages")
    said = [m for m in messages if isinstance(m, Mapping)] if isinstance(messages, Sequence) else []
    return "\n".join(_content(m.get("content")) for m in said)


def _content(content: Any) -> str:
    """A message's content: a string, or a list of parts of which some hold text."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(_str(p.get("text")) for p in content if isinstance(p, Mapping))
    return ""


def _from_stream(raw: str, echo: bool) -> Reply:
    """Server-sent events: `data:` lines joined per event, `[DONE]` at the end."""
    bodies: list[Any] = []
    done, cut = False, None
    for event in re.split(r"\r?\n[ \t]*\r?\n", raw):
        lines = [line[5:].removeprefix(" ") for line in event.splitlines() if line.startswith("data:")]
        lines = lines or [line for line in event.splitlines() if line.startswith("{")]  # an error outside the protocol
        for data in ["\n".join(lines)] if _is_json("\n".join(lines)) else lines:
            if not data.strip():
                continue
            if data.strip() == "[DONE]":
                done = True
                continue
            try:
                bodies.append(json.loads(data, strict=False))
            except (ValueError, RecursionError):
                rest = _mended(data)
                bodies += [rest] if rest else []
                cut = "an event of the stream ends in the middle"
    whole = _from_bodies(bodies, echo, stream=True)
    if cut is None and not (done or any(c.finish for c in whole.choices)):
        cut = "the stream ends without finish reason and without [DONE]"
    return Reply(whole.choices, whole.error, cut)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _mended(text: str) -> Any:
    try:
        return mended_json(text)
    except RecursionError:  # thousands of brackets: no server of these answers so
        return None


def _from_bodies(bodies: Iterable[Any], echo: bool, stream: bool = False) -> Reply:
    """Bodies of one reply (several only in a stream, or in a native batch, which is a list) as choices by index."""
    parts: dict[Any, list[Choice]] = {}
    flat = [b for body in bodies for b in (body if isinstance(body, list) else [body])]
    for n, body in enumerate(flat):
        if not isinstance(body, Mapping):
            return Reply(error=f"the body is no object: {_short(body)}")
        if said := _error(body):
            return Reply(tuple(_joined(p) for p in parts.values()), error=said)
        choices = body.get("choices")
        if isinstance(choices, list):
            usage = body.get("usage") if len(choices) == 1 else None  # it counts all choices together
            for choice in (c for c in choices if isinstance(c, Mapping)):
                parts.setdefault(_index(choice), []).append(_openai(choice, usage, echo))
        elif "text" in body or "output_ids" in body or "meta_info" in body:
            parts.setdefault(_index(body) if stream else n, []).append(_native(body))
        elif not stream:
            return Reply(error=f"the body holds no answer: {_short(body)}")
    return Reply(tuple(_joined(p) for p in parts.values()))


def _index(choice: Mapping[str, Any]) -> int:
    return _count(choice.get("index")) or 0


def _error(body: Mapping[str, Any]) -> str | None:
    said = body.get("error") or (body if body.get("object") == "error" else None)
    if not said:
        return None
    return _short(said.get("message") or said if isinstance(said, Mapping) else said)


def _native(body: Mapping[str, Any]) -> Choice:
    raw_meta = body.get("meta_info")
    meta: Mapping[str, Any] = raw_meta if isinstance(raw_meta, Mapping) else {}
    finish, rows = meta.get("finish_reason"), meta.get("output_token_logprobs")
    ids = body.get("output_ids")
    rows = [r for r in rows if isinstance(r, list) and r] if isinstance(rows, list) else []
    from_rows = _ids(r[1] for r in rows if len(r) > 1)
    reason = finish.get("type") if isinstance(finish, Mapping) else finish
    return Choice(
        answer=_str(body.get("text")),
        ids=_ids(ids) if isinstance(ids, list) else from_rows,
        logprobs=tuple(_number(r[0]) for r in rows),
        finish=_str(reason) or None,
        matched=finish.get("matched") if isinstance(finish, Mapping) else None,
        tokens=_count(meta.get("completion_tokens", finish.get("length") if isinstance(finish, Mapping) else None)),
        native=True,
    )


def _openai(choice: Mapping[str, Any], usage: Any, echo: bool) -> Choice:
    raw = choice.get("message") or choice.get("delta")
    said: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    content = _content(said.get("content")) or _str(choice.get("text")) or _str(said.get("refusal"))
    thought = _str(said.get("reasoning_content") or said.get("reasoning"))
    calls = said.get("tool_calls") or said.get("function_call")
    finish = choice.get("finish_reason")
    return Choice(
        answer=content + _json(calls),
        thought=thought,
        tool_call=bool(calls),
        logprobs=_openai_logprobs(choice.get("logprobs"), echo),
        finish=_str(finish) or None,
        matched=choice.get("matched_stop"),
        tokens=_count(usage.get("completion_tokens")) if isinstance(usage, Mapping) else None,
    )


def _openai_logprobs(logprobs: Any, echo: bool) -> tuple[float, ...]:
    """`logprobs: null` means that none were asked for; a null inside the list is a number that JSON cannot hold."""
    if not isinstance(logprobs, Mapping):
        return ()
    rows = logprobs.get("content")
    if isinstance(rows, list):
        return tuple(_number(r.get("logprob")) for r in rows if isinstance(r, Mapping) and "logprob" in r)
    values = logprobs.get("token_logprobs")
    if not isinstance(values, list):
        return ()
    first_of_prompt = 1 if echo and values and values[0] is None else 0  # nothing precedes it: null by definition
    return tuple(_number(v) for v in values[first_of_prompt:])


def _number(value: Any) -> float:
    """A log-probability; nan for null, NaN, infinities, their names as strings and their disguises."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if abs(number) < -_DISGUISED_INF else math.nan


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST else None


def _ids(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(i for i in map(_count, values) if i is not None)


def _str(value: Any) -> str:
    """Whatever stands where a text belongs, as text; "" for nothing."""
    try:
        return str(value or "")
    except RecursionError:
        return "a value nested too deeply"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False) if value else ""
    except RecursionError:
        return _str(value)


def _joined(parts: list[Choice]) -> Choice:
    """The chunks of one choice as one. A native stream's fields may each be cumulative or not (even mixed)."""
    if len(parts) == 1:
        return parts[0]
    whole: Callable[[list[Any]], list[Any]] = _grown if all(p.native for p in parts) else list
    last = next((p for p in reversed(parts) if p.finish), parts[-1])
    counts = [p.tokens for p in parts if p.tokens is not None]
    return Choice(
        answer="".join(whole([p.answer for p in parts])),
        thought="".join(p.thought for p in parts),
        tool_call=any(p.tool_call for p in parts),
        ids=tuple(i for ids in whole([p.ids for p in parts]) for i in ids),
        logprobs=tuple(n for row in whole([p.logprobs for p in parts]) for n in row),
        finish=last.finish,
        matched=last.matched,
        tokens=max(counts, default=None),
    )


def _grown(parts: list[Any]) -> list[Any]:
    """The parts that make up the whole: only the last where each begins with the one before and they grow, else all."""
    full = [p for p in parts if len(p)]
    shown = [tuple(map(repr, p)) for p in full]  # repr: nan equals itself, so that NaN rows are seen as cumulative
    grows = all(b[: len(a)] == a for a, b in itertools.pairwise(shown)) and len(set(shown)) > 1
    return full[-1:] if grows else full


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else _str(value) or repr(value)).split())
    return text if len(text) <= 160 else text[:157] + "..."
