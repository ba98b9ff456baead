"""The server's side of the schedulers: it hands requests over, and puts the tokens that come back into replies."""

import contextlib
import json
import queue
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from sglang import _words
from sglang._effective import Resolved
from sglang._story import STORY

__all__ = ["HEALTH_CHECK", "Engine", "Reply", "TooLong"]

HEALTH_CHECK = "HEALTH_CHECK"  # how the ids of requests begin that /health makes


class TooLong(Exception):
    """The request does not fit the context: HTTP 400 with this message."""


class Engine:
    """Requests in flight. `status` is what /health goes by: starting, up, or stopping."""

    def __init__(self, setup: Resolved, channel: socket.socket, kv_tokens: int) -> None:
        self.setup, self.kv_tokens, self.status = setup, kv_tokens, "starting"
        self.version_tag = "default"
        self._channel = channel
        self._inboxes: dict[str, queue.SimpleQueue[tuple[str, bool]]] = {}
        self._sending = threading.Lock()
        fault = STORY.at("decode", setup.effective)
        self._wrong = fault is not None and fault.does == "wrong"
        self._seen: set[str] = set()  # prompts whose KV cache is still there
        threading.Thread(target=self._receive, daemon=True).start()

    @property
    def running(self) -> int:
        return len(self._inboxes)

    def generate(
        self, prompt: str | list[int], params: dict[str, Any], more: dict[str, Any], *, thinks: bool = False
    ) -> "Iterator[Reply]":
        """The reply to one prompt, once after each token; then it is whole. Raises: TooLong."""
        text = prompt if isinstance(prompt, str) else _words.wording(prompt)
        asked = len(_words.to_pieces(prompt)) if isinstance(prompt, str) else len(prompt)
        longest = int(params.get("max_new_tokens") or 128)
        self._check_length(asked, longest)
        temperature = float(params.get("temperature", 1.0))
        greedy = temperature == 0
        seed = 0 if greedy else uuid.uuid4().int % 1_000
        pieces = _words.answer(text, seed, thinks=thinks, wrong=self._wrong)
        ignore_eos = bool(params.get("ignore_eos"))
        ends_by_itself = not ignore_eos and len(pieces) + 1 <= longest
        while len(pieces) < longest and not ends_by_itself:
            pieces += _words.more(text, len(pieces))
        said = Reply(self, asked, pieces[:longest], longest, more)
        said.cached = asked - 1 if text in self._seen else 0
        self._seen.add(text)
        inbox = self._send({
            "rid": said.rid,
            "prompt_tokens": asked,
            "new_tokens": len(pieces) + 1 if ends_by_itself else longest,
            "max_tokens": longest,
            "ignore_eos": ignore_eos,
            "sampled": not greedy and float(params.get("top_p", 1.0)) < 1.0,
            "warmup": self.status == "starting" or said.rid.startswith(HEALTH_CHECK),
        })
        try:
            ended = False
            while not ended:
                kind, ended = inbox.get()
                said.add(kind, ended)
                yield said
        finally:
            self._inboxes.pop(said.rid, None)

    def flush(self) -> bool:
        """Forget all caches, unless requests are running."""
        if not self.running:
            self._seen.clear()
        return not self.running

    def _check_length(self, asked: int, new: int) -> None:
        if asked + new > self.setup.context:
            raise TooLong(
                f"Requested token count exceeds the model's maximum context length of {self.setup.context} tokens. "
                f"You requested a total of {asked + new} tokens: {asked} tokens from the input messages and {new} "
                "tokens for the completion. Please reduce the number of tokens in the input messages or the "
                "completion to fit within the limit."
            )

    def _send(self, message: dict[str, Any]) -> "queue.SimpleQueue[tuple[str, bool]]":
        inbox = self._inboxes[message["rid"]] = queue.SimpleQueue()
        with self._sending, contextlib.suppress(ConnectionError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        return inbox

    def _receive(self) -> None:
        """Runs in a thread. After the scheduler's death nothing comes any more: requests wait until the tree dies."""
        rest = b""
        with contextlib.suppress(ConnectionError):
            while got := self._channel.recv(1 << 20):
                *lines, rest = (rest + got).split(b"\n")
                for line in lines:
                    for rid, kind, ended in json.loads(line)["tokens"]:
                        if inbox := self._inboxes.get(rid):
                            inbox.put((kind, ended))


class Reply:
    """One request's reply as it grows: its text, and for each token the log-probability and the piece."""

    def __init__(
        self, engine: Engine, asked: int, pieces: list[str], longest: int, more: dict[str, Any]
    ) -> None:
        self.rid, self.asked = str(more.get("rid") or uuid.uuid4().hex), asked
        self.version_tag, self.cached = engine.version_tag, 0
        self._pieces, self._longest, self._more = pieces, longest, more
        self.text, self._begun = "", time.perf_counter()
        self.ids: list[int] = []
        self.said: list[tuple[float | None, str]] = []
        self.finish: dict[str, Any] | None = None

    def add(self, kind: str, ended: bool) -> None:
        """One more token: of a healthy row, or of a row of NaN, whose argmax is token 0."""
        place = len(self.ids)
        if kind == "mixed":
            piece, token, value = _words.salad(self.rid, place)
        elif kind != "ok":
            piece, token, value = "!" if kind == "bang" else "", 0, None
        elif place < len(self._pieces):
            piece = self._pieces[place]
            token, value = _words.token_of(piece), _words.logprob(piece, place)
        else:
            piece, token, value = "", _words.END_TOKEN, _words.logprob("", place)
        self.text += piece
        self.ids.append(token)
        self.said.append((value, piece))
        if ended:
            stopped = len(self.ids) < self._longest or self.ids[-1] == _words.END_TOKEN
            self.finish = (
                {"type": "stop", "matched": self.ids[-1]} if stopped else {"type": "length", "length": self._longest}
            )

    def as_json(self) -> dict[str, Any]:
        tag = self.version_tag
        done = len(self.ids)
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": self.finish,
            "prompt_tokens": self.asked,
            "weight_version": tag,
            "num_retractions": 0,
        }
        if self._more.get("return_logprob"):
            rows = [[value, token, None] for (value, _), token in zip(self.said, self.ids, strict=True)]
            meta |= {
                "input_token_logprobs": [],
                "output_token_logprobs": rows,
                "output_token_logprobs_length": done,
            }
            if top := int(self._more.get("top_logprobs_num") or 0):
                meta |= {"input_top_logprobs": [], "output_top_logprobs": [self._top(row, top) for row in rows]}
        meta |= {"reasoning_tokens": 0, "completion_tokens": done, "cached_tokens": self.cached}
        if self.finish:
            meta["weight_versions"] = [{"version": tag, "start": 0, "end": done}]
        details = {"device": self.cached, "host": 0} if self.cached else None
        meta |= {"cached_tokens_details": details, "dp_rank": None}
        if self.finish:
            meta["e2e_latency"] = time.perf_counter() - self._begun
        if done == 1 if self._more.get("stream") else self.finish:
            meta["response_sent_to_client_ts"] = time.time()
        return {"text": self.text, "output_ids": list(self.ids), "meta_info": meta}

    @staticmethod
    def _top(best: list[Any], top: int) -> list[list[Any]]:
        if best[0] is None:
            return [[None, 0, None]] * top
        return [best, *([best[0] - 1.5 - n, (best[1] + 97 * n) % 150_000 + 256, None] for n in range(1, top))]
