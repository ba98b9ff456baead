"""The HTTP server: endpoints, status codes and reply shapes as recorded from the real one."""

import itertools
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sglang._engine import HEALTH_CHECK, Engine, Reply, TooLong
from sglang._log import log
from sglang._story import STORY
from sglang._words import THOUGHT_ENDS

__all__ = ["Server", "warm_up"]

_OLD_NAMES = {"/get_server_info": "/server_info", "/get_model_info": "/model_info"}


class Server(ThreadingHTTPServer):
    """Binds in its constructor. Raises: OSError when the port is taken."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True
    allow_reuse_port = False

    def __init__(self, host: str, port: int, engine: Engine, startup: dict[str, Any]) -> None:
        self.engine, self.startup = engine, startup
        super().__init__((host, port), _Api)

    def server_bind(self) -> None:
        """Without the reverse name look-up of the base class, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news; anything else is a fault of this stand-in."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in _OLD_NAMES:
            log(
                f"Endpoint '{path}' is deprecated and will be removed in a future version. Please use "
                f"'{_OLD_NAMES[path]}' instead."
            )
            path = _OLD_NAMES[path]
        engine = self.server.engine
        if path in ("/health", "/health_generate") or (path == "/ready" and STORY.release == "0.5.23"):
            self._health(path)
        elif path == "/v1/models":
            model = engine.setup.effective["served_model_name"]
            self._json({"object": "list", "data": [{
                "id": model, "object": "model", "created": int(time.time()), "owned_by": "sglang", "root": model,
                "parent": None, "max_model_len": engine.setup.context,
            }]})
        elif path == "/model_info":
            self._json(_model_info(engine))
        elif path == "/server_info":
            self._json(_server_info(engine, self.server.startup))
        elif path == "/metrics" and engine.setup.effective["enable_metrics"]:
            self._send(200, f"sglang:num_running_reqs {engine.running}\n".encode(), "text/plain; version=0.0.4")
        elif path == "/flush_cache":
            self._flush()
        else:
            self._json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        if path == "/flush_cache":
            self._flush()
            return
        if path in ("/freeze_gc", "/abort_request"):
            self._send(200, b"", "")
            return
        answer = {"/generate": self._generate, "/v1/completions": self._completions, "/v1/chat/completions": self._chat}
        if path not in answer:
            self._json({"detail": "Not Found"}, 404)
            return
        try:
            answer[path](json.loads(body))
        except TooLong as e:
            log(f"[http_server] Error: {e}")
            self._json({"error": {"message": str(e)}}, 400)
        except (ValueError, KeyError, TypeError) as e:
            self._json({"error": {"message": str(e) or type(e).__name__}}, 400)

    def log_message(self, format: str, *args: Any) -> None:
        """Uvicorn's access lines are written where the reply is."""

    def _health(self, path: str) -> None:
        engine = self.server.engine
        if engine.status != "up":
            if engine.status == "stopping":
                log("Health check request received during shutdown. Returning 503.")
            self._send(503, b"", "")
            return
        if path != "/ready":
            rid = f"{HEALTH_CHECK}_{time.time()}"
            list(engine.generate([0], {"max_new_tokens": 1, "temperature": 0}, {"rid": rid}))
        self._send(200, b"", "")

    def _flush(self) -> None:
        flushed = self.server.engine.flush()
        text = "Cache flushed.\n" if flushed else "Cache not flushed: requests are running.\n"
        self._send(200 if flushed else 400, text.encode(), "text/plain; charset=utf-8")

    def _generate(self, asked: dict[str, Any]) -> None:
        prompt = asked.get("input_ids") if asked.get("text") is None else asked["text"]
        if prompt is None or prompt == []:
            raise ValueError("Either text, input_ids or input_embeds should be provided.")
        params = asked.get("sampling_params") or {}
        if isinstance(prompt, list) and not isinstance(prompt[0], int):
            self._json(_batch(self.server.engine, prompt, params, asked))
        elif asked.get("stream"):
            self._stream(self.server.engine.generate(prompt, params, asked), Reply.as_json)
        else:
            self._json(_last(self.server.engine.generate(prompt, params, asked)).as_json())

    def _completions(self, asked: dict[str, Any]) -> None:
        self._openai(asked, asked["prompt"], _completion, "text_completion")

    def _chat(self, asked: dict[str, Any]) -> None:
        prompt = "\n".join(str(m.get("content") or "") for m in asked["messages"])
        self._openai(asked, prompt, _message, "chat.completion")

    def _openai(self, asked: dict[str, Any], prompt: Any, choice: "Choice", kind: str) -> None:
        engine = self.server.engine
        thinks = choice is _message and bool(engine.setup.effective["reasoning_parser"])
        if thinks:
            choice = _thoughtful
        replies = engine.generate(prompt, _openai_params(asked), {}, thinks=thinks)
        if asked.get("stream"):
            sent = [0, 0]
            chunk = "chat.completion.chunk" if kind == "chat.completion" else kind
            self._stream(replies, lambda reply: _what_is_new(_openai_reply(asked, reply, choice, chunk), sent))
        else:
            self._json(_openai_reply(asked, _last(replies), choice, kind))

    def _stream(self, replies: Iterator[Reply], as_json: Callable[[Reply], dict[str, Any]]) -> None:
        """Server-sent events. An error before the first token is still an HTTP status."""
        first = next(replies)
        self._head(200, "text/event-stream; charset=utf-8", {"Transfer-Encoding": "chunked"})
        for text in itertools.chain((_dumps(as_json(r)) for r in itertools.chain([first], replies)), ["[DONE]"]):
            content = f"data: {text}\n\n".encode()
            self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, body: Any, status: int = 200) -> None:
        self._send(status, _dumps(body).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self._head(status, kind, {"content-length": str(len(content))})
        self.wfile.write(content)

    def _head(self, status: int, kind: str, more: dict[str, str]) -> None:
        phrase = self.responses[status][0]
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        log(f'INFO:     {client} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}')
        lines = [f"HTTP/1.1 {status} {phrase}", f"date: {self.date_time_string()}", "server: uvicorn"]
        lines += [f"{name}: {value}" for name, value in more.items()]
        lines += [f"content-type: {kind}"] if kind else []
        self.wfile.write("\r\n".join([*lines, "vary: Origin", "", ""]).encode())


def warm_up(host: str, port: int) -> None:
    """The requests by which a server warms itself up, over HTTP as anybody's. What is answered is not looked at."""
    old = STORY.release in ("0.5.8.post1", "0.5.9", "0.5.10.post1")
    first = {"temperature": 0, "max_new_tokens": 8}
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/get_model_info" if old else "/model_info", None),
        ("POST", "/generate", {"text": "The capital city of France is", "sampling_params": first}),
    ]
    for method, path, body in asked if old else [*asked, ("POST", "/freeze_gc", {})]:
        connection = HTTPConnection(host, port)
        connection.request(method, path, None if body is None else json.dumps(body))
        connection.getresponse().read()
        connection.close()


Choice = Callable[[Reply, bool], dict[str, Any]]


def _openai_reply(asked: dict[str, Any], reply: Reply, choice: Choice, kind: str) -> dict[str, Any]:
    reason, whole = reply.finish or {"type": None}, reply.as_json()["meta_info"]
    ended = {"finish_reason": reason["type"], "matched_stop": reason.get("matched")}
    return {
        "id": reply.rid, "object": kind, "created": int(time.time()), "model": asked.get("model"),
        "choices": [{"index": 0, **choice(reply, bool(asked.get("logprobs"))), **ended}],
        "usage": {
            "prompt_tokens": reply.asked, "total_tokens": reply.asked + len(reply.ids),
            "completion_tokens": len(reply.ids), "prompt_tokens_details": None, "reasoning_tokens": 0,
            "completion_tokens_details": None,
        },
        "metadata": {key: whole.get(key) for key in ("weight_version", "weight_versions")},
    }


def _completion(reply: Reply, logprobs: bool) -> dict[str, Any]:
    shown = {
        "text_offset": [-1] * len(reply.said), "token_logprobs": [value for value, _ in reply.said],
        "tokens": [piece for _, piece in reply.said], "top_logprobs": [None] * len(reply.said),
    }
    return {"text": reply.text, "logprobs": shown if logprobs else None}


def _message(reply: Reply, logprobs: bool) -> dict[str, Any]:
    rows = [
        {"token": piece, "bytes": list(piece.encode()), "logprob": value, "top_logprobs": []}
        for value, piece in reply.said
    ]
    message = {"role": "assistant", "content": reply.text.lstrip(), "reasoning_content": None}
    return {"message": message, "logprobs": {"content": rows} if logprobs else None}


def _thoughtful(reply: Reply, logprobs: bool) -> dict[str, Any]:
    """The message with its thought apart, as a reasoning parser gives it."""
    said = _message(reply, logprobs)
    thought, _, content = reply.text.partition(THOUGHT_ENDS)
    said["message"] |= {"content": content.lstrip() or None, "reasoning_content": thought.lstrip()}
    return said


def _what_is_new(whole: dict[str, Any], sent: list[int]) -> dict[str, Any]:
    """A whole reply as a chunk of a stream: only what came after the `sent` characters of answer and thought."""
    choice = whole["choices"][0]
    if "message" in choice:
        choice["delta"] = message = choice.pop("message")
        for part, name in enumerate(("content", "reasoning_content")):
            text = message[name] or ""
            message[name], sent[part] = text[sent[part]:] or None, len(text)
        if choice["logprobs"]:
            choice["logprobs"] = {"content": choice["logprobs"]["content"][-1:]}
    else:
        choice["text"], sent[0] = choice["text"][sent[0]:], len(choice["text"])
        if choice["logprobs"]:
            choice["logprobs"] = {key: values[-1:] for key, values in choice["logprobs"].items()}
    return whole


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _last(replies: Iterable[Reply]) -> Reply:
    *_, last = replies
    return last


def _batch(engine: Engine, prompts: list[Any], params: Any, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Replies to all prompts of one request; they run together."""
    each = params if isinstance(params, list) else [params] * len(prompts)
    more = {key: value for key, value in asked.items() if key != "rid"}
    streams = [engine.generate(prompt, one, more) for prompt, one in zip(prompts, each, strict=True)]
    firsts = [next(stream) for stream in streams]
    return [(list(stream) or [first])[-1].as_json() for stream, first in zip(streams, firsts, strict=True)]


def _openai_params(asked: dict[str, Any]) -> dict[str, Any]:
    longest = asked.get("max_completion_tokens") or asked.get("max_tokens")
    return {
        "max_new_tokens": longest, "ignore_eos": asked.get("ignore_eos"),
        "temperature": asked.get("temperature", 1.0), "top_p": asked.get("top_p", 1.0),
    }


def _model_info(engine: Engine) -> dict[str, Any]:
    args, model = engine.setup.effective, engine.setup.model
    return {
        "model_path": args["model_path"], "served_model_name": args["served_model_name"],
        "tokenizer_path": args["tokenizer_path"], "is_generation": True, "preferred_sampling_params": None,
        "weight_version": engine.version_tag, "load_format": args["load_format"],
        "reasoning_parser": args["reasoning_parser"], "tool_call_parser": args["tool_call_parser"],
        "disaggregation_mode": "null", "has_image_understanding": False, "has_audio_understanding": False,
        "model_type": model["model_type"], "architectures": model["architectures"],
    }


def _server_info(engine: Engine, startup: dict[str, Any]) -> dict[str, Any]:
    args = engine.setup.effective
    state = {**args, "last_gen_throughput": 0.0, "memory_usage": {"token_capacity": engine.kv_tokens}}
    return {
        **args, "status": "ready" if engine.status == "up" else engine.status, "max_total_num_tokens": engine.kv_tokens,
        "max_req_input_len": engine.setup.context - 6, "startup_time": startup, "internal_states": [state],
        "version": STORY.release, "launch_command": " ".join(sys.argv[1:]), "frontend": "python", "kv_events": None,
    }
