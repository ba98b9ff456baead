"""The server's side of the schedulers: it hands requests over, and puts the tokens that come back into replies."""

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

__all__ = ["Engine", "TooLong"]


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
        threading.Thread(target=self._receive, daemon=True).start()

    @property
    def running(self) -> int:
        return len(self._inboxes)

    def generate(self, prompt: str | list[int], params: dict[str, Any], more: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Replies of /generate for one prompt, one after each token; the last one is whole. Raises: TooLong."""
        text = prompt if isinstance(prompt, str) else _words.wording(prompt)
        asked = len(_words.to_pieces(prompt)) if isinstance(prompt, str) else len(prompt)
        longest = int(params.get("max_new_tokens") or 128)
        self._check_length(asked, longest)
        temperature = float(params.get("temperature", 1.0))
        greedy = temperature == 0
        pieces = _words.answer(text, 0 if greedy else uuid.uuid4().int % 1_000)
        ignore_eos = bool(params.get("ignore_eos"))
        ends_by_itself = not ignore_eos and len(pieces) + 1 <= longest
        while len(pieces) < longest and not ends_by_itself:
            pieces += _words.more(len(pieces))
        said = _Reply(self, asked, pieces[:longest], longest, ends_by_itself, more)
        inbox = self._send({
            "rid": said.rid,
            "prompt_tokens": asked,
            "new_tokens": len(pieces) + 1 if ends_by_itself else longest,
            "max_tokens": longest,
            "ignore_eos": ignore_eos,
            "sampled": not greedy and float(params.get("top_p", 1.0)) < 1.0,
            "warmup": bool(more.get("warmup")),
        })
        try:
            ended = False
            while not ended:
                kind, ended = inbox.get()
                said.add(kind, ended)
                yield said.as_json()
        finally:
            self._inboxes.pop(said.rid, None)

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
        with self._sending:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        return inbox

    def _receive(self) -> None:
        """Runs in a thread. When the scheduler is gone nothing comes any more, and requests wait until the tree dies."""
        rest = b""
        while got := self._channel.recv(1 << 20):
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                for rid, kind, ended in json.loads(line)["tokens"]:
                    if inbox := self._inboxes.get(rid):
                        inbox.put((kind, ended))


class _Reply:
    """One request's reply as it grows."""

    def __init__(
        self, engine: Engine, asked: int, pieces: list[str], longest: int, ends_by_itself: bool, more: dict[str, Any]
    ) -> None:
        self.rid = str(more.get("rid") or uuid.uuid4().hex)
        self._engine, self._asked, self._pieces, self._longest, self._more = engine, asked, pieces, longest, more
        self._ends_by_itself = ends_by_itself
        self._text, self._begun = "", time.perf_counter()
        self._ids: list[int] = []
        self._logprobs: list[list[Any]] = []
        self._finish: dict[str, Any] | None = None

    def add(self, kind: str, ended: bool) -> None:
        """One more token: of a healthy row, or of a row of NaN, whose argmax is token 0."""
        place = len(self._ids)
        if kind != "ok":
            self._ids.append(0)
            self._logprobs.append([None, 0, None])
            self._text += "!" if kind == "bang" else ""
        elif place < len(self._pieces):
            piece = self._pieces[place]
            self._ids.append(_words.token_of(piece))
            self._text += piece
            self._logprobs.append([_words.logprob(piece, place), self._ids[-1], None])
        else:
            self._ids.append(_words.END_TOKEN)
            self._logprobs.append([_words.logprob("", place), _words.END_TOKEN, None])
        if ended:
            stopped = len(self._ids) < self._longest or self._ids[-1] == _words.END_TOKEN
            matched = self._ids[-1]
            self._finish = {"type": "stop", "matched": matched} if stopped else {"type": "length", "length": self._longest}

    def as_json(self) -> dict[str, Any]:
        tag = self._engine.version_tag
        done = len(self._ids)
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": self._finish,
            "prompt_tokens": self._asked,
            "weight_version": tag,
            "num_retractions": 0,
        }
        if self._more.get("return_logprob"):
            meta |= {
                "input_token_logprobs": [],
                "output_token_logprobs": self._logprobs,
                "output_token_logprobs_length": done,
            }
            if top := int(self._more.get("top_logprobs_num") or 0):
                meta |= {"input_top_logprobs": [], "output_top_logprobs": [self._top(lp, top) for lp in self._logprobs]}
        meta |= {"reasoning_tokens": 0, "completion_tokens": done, "cached_tokens": 0}
        if self._finish:
            meta["weight_versions"] = [{"version": tag, "start": 0, "end": done}]
        meta |= {"cached_tokens_details": None, "dp_rank": None}
        if self._finish:
            meta["e2e_latency"] = time.perf_counter() - self._begun
        if self._finish or done == 1:
            meta["response_sent_to_client_ts"] = time.time()
        return {"text": self._text, "output_ids": list(self._ids), "meta_info": meta}

    @staticmethod
    def _top(best: list[Any], top: int) -> list[list[Any]]:
        if best[0] is None:
            return [[None, 0, None]] * top
        return [best, *([best[0] - 1.5 - n, (best[1] + 97 * n) % 150_000 + 256, None] for n in range(1, top))]
