"""Replies in the shapes that the served API gives them, for the tests of the judge."""

import json
from collections.abc import Sequence
from typing import Any

from settings.words import Verdict
from tasks.pure.judge import Call, judge

__all__ = ["FRANCE", "chat", "chat_stream", "completions", "native", "native_stream", "sse", "verdict"]

FRANCE = "The capital city of France is"


def verdict(reply: Any, prompt: str = FRANCE, *, status: int = 200, **request: Any) -> Verdict:
    return judge(Call("x", "generate", status, {"prompt": prompt, **request}, reply)).verdict


def native(
    text: str, ids: Sequence[int] = (), logprobs: Sequence[Any] | None = None, finish: str | None = "stop", **meta: Any
) -> dict[str, Any]:
    count = len(ids) or len(text.split())
    reason: dict[str, Any] | None = {"type": finish, "matched": 151_336} if finish else None
    if finish == "length":
        reason = {"type": "length", "length": count}
    info: dict[str, Any] = {"finish_reason": reason, "prompt_tokens": 6, "completion_tokens": count, **meta}
    if logprobs is not None:
        named = [*ids, *[7] * len(logprobs)]
        info["output_token_logprobs"] = [[p, named[n], None] for n, p in enumerate(logprobs)]
    return {"text": text, "output_ids": list(ids), "meta_info": info}


def chat(content: str | None, finish: str | None = "stop", logprobs: Any = None, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": said, "logprobs": logprobs, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": 20}}


def completions(*texts: str, finish: str | None = "stop", logprobs: Any = None) -> dict[str, Any]:
    choices = [
        {"index": n, "text": text, "logprobs": logprobs, "finish_reason": finish} for n, text in enumerate(texts)
    ]
    return {"object": "text_completion", "choices": choices, "usage": {"completion_tokens": 20}}


def sse(*bodies: Any, done: bool = True) -> str:
    events = [json.dumps(body, ensure_ascii=False) for body in bodies] + ["[DONE]"] * done
    return "".join(f"data: {event}\n\n" for event in events)


def chat_stream(pieces: Sequence[str], finish: str | None = "stop", *, done: bool = True) -> str:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    said = [chunk({"content": piece}) for piece in pieces]
    return sse(chunk({"role": "assistant", "content": ""}), *said, *([chunk({}, finish)] if finish else []), done=done)


def native_stream(pieces: Sequence[str], ids: Sequence[int], *, cumulative: bool, finish: str | None = "stop") -> str:
    """One token a piece; `cumulative` as SGLang streams by default, else as with incremental_streaming_output."""
    chunks = []
    for n in range(1, len(pieces) + 1):
        first = 0 if cumulative else n - 1
        reason = {"type": finish} if finish and n == len(pieces) else None
        meta = {"finish_reason": reason, "completion_tokens": n}
        chunks.append({"text": "".join(pieces[first:n]), "output_ids": list(ids[first:n]), "meta_info": meta})
    return sse(*chunks)
