"""Calls to the served API. What goes wrong on the wire is a value; only the loss of the host itself is raised."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from settings.suite import Api, Probe
from tasks.deadline import Deadline
from tasks.pure.reply import Call

__all__ = ["Limits", "ask", "is_gone", "read_limits", "request_of"]

_PATH: Mapping[Api, str] = {
    "generate": "/generate",
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
}
_ENOUGH_S = 10.0  # for a question that no model has to answer


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may be; None where the server does not say."""

    context_tokens: int | None = None
    kv_tokens: int | None = None
    model: str = "default"

    def room(self) -> int | None:
        """Tokens of prompt and answer together."""
        known = [n for n in (self.context_tokens, self.kv_tokens) if n is not None]
        return min(known, default=None)


def request_of(probe: Probe, prompt: str, model: str) -> dict[str, Any]:
    """The request body of one call of a probe, with log-probabilities: they show NaN whatever the tokenizer."""
    sampling: dict[str, Any] = {} if probe.own_sampling else {"temperature": probe.temperature}
    if probe.top_p is not None:
        sampling["top_p"] = probe.top_p
    if probe.ignore_eos:
        sampling["ignore_eos"] = True
    if probe.api == "generate":
        sampling["max_new_tokens"] = probe.max_new_tokens
        body: dict[str, Any] = {"text": prompt, "sampling_params": sampling, "return_logprob": True}
    elif probe.api == "chat":
        messages = [{"role": "user", "content": prompt}]
        body = {"model": model, "messages": messages, "max_tokens": probe.max_new_tokens, "logprobs": True, **sampling}
    else:
        body = {"model": model, "prompt": prompt, "max_tokens": probe.max_new_tokens, "logprobs": 1, **sampling}
    return {**body, "stream": True} if probe.stream else body


def ask(client: httpx.Client, id: str, api: Api, request: Mapping[str, Any], *, deadline: Deadline) -> Call:
    """Send one request and keep whatever came back, half a body included.

    Raises: HostError when the host, not the server, is lost.
    """
    began, status, got, lost = time.monotonic(), 0, bytearray(), ""
    try:
        with client.stream("POST", _PATH[api], json=request, timeout=max(deadline.left_s, 0.001)) as response:
            status = response.status_code
            for chunk in response.iter_bytes():
                got += chunk
                if deadline.passed:
                    lost = "the answer had not ended when its time was over"
                    break
    except httpx.TimeoutException:
        lost = "no answer within its time"
    except httpx.TransportError as e:
        lost = f"the connection failed: {type(e).__name__}: {e}"
    wall_s = time.monotonic() - began
    return Call(id, api, status, request, _parsed(bytes(got)), lost=lost, wall_s=wall_s)


def read_limits(client: httpx.Client, *, deadline: Deadline) -> Limits:
    """What `/server_info` (`/get_server_info` before 0.5.x) and `/v1/models` say about lengths."""
    info = _get(client, "/server_info", deadline) or _get(client, "/get_server_info", deadline)
    models = _get(client, "/v1/models", deadline).get("data")
    first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    kv = info.get("max_total_num_tokens") or state.get("max_total_num_tokens")
    context = first.get("max_model_len") or info.get("context_length")
    return Limits(
        context_tokens=context if isinstance(context, int) else None,
        kv_tokens=kv if isinstance(kv, int) else None,
        model=str(first.get("id") or "default"),
    )


def is_gone(client: httpx.Client, *, deadline: Deadline) -> bool:
    """Whether nothing listens on the server's port any more. A server that is merely silent is not gone."""
    try:
        client.get("/health", timeout=max(0.001, min(_ENOUGH_S, deadline.left_s)))
    except httpx.TimeoutException:
        return False
    except httpx.TransportError:
        return True
    return False


def _get(client: httpx.Client, path: str, deadline: Deadline) -> dict[str, Any]:
    try:
        response = client.get(path, timeout=max(0.001, min(_ENOUGH_S, deadline.left_s)))
        body = response.json() if response.status_code == 200 else {}
    except (httpx.TransportError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _parsed(body: bytes) -> Any:
    """The JSON value, or the raw text where it is none (a stream, or cut)."""
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text
