"""The load test: it sends real requests and computes real numbers, and hides failures where SGLang's own hides them."""

import argparse
import json
import math
import queue
import random
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sglang._load import Output, record, table
from sglang._log import plain
from sglang._story import STORY
from sglang._words import to_pieces, wording

__all__ = ["main"]

_FACTS = Path(__file__).resolve().parent.parent / "parsers" / "bench_serving.json"
# Flags of this parser (recorded from 0.5.23) that these releases did not have.
_MISSING = {
    "0.5.8.post1": ("--ready-check-timeout-sec", "--temperature"),
    "0.5.9": ("--ready-check-timeout-sec", "--temperature"),
}
_TYPES = {"int": int, "float": float}
_VOCABULARY = 150_000


def main(argv: list[str]) -> None:
    args = _parse(argv)
    base = urlsplit(args.base_url or f"http://{args.host or '0.0.0.0'}:{args.port or 30_000}")
    _wait_until_ready(base.geturl(), _Client(base), getattr(args, "ready_check_timeout_sec", 0))
    client = _Client(base)
    if args.model is None:
        args.model = client.get("/v1/models")["data"][0]["id"]
    args.tokenizer = args.tokenizer or args.model
    plain(f"{args}\n\n")
    prompts = _prompts(args)
    print(f"#Input tokens: {sum(p['len'] for p in prompts)}")
    print(f"#Output tokens: {sum(p['out'] for p in prompts)}")
    _warm_up(args, base, prompts)
    begun = time.perf_counter()
    outputs = _run(args, base, prompts)
    _report(args, client, prompts, outputs, time.perf_counter() - begun)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_serving.py")
    for fact in json.loads(_FACTS.read_text(encoding="utf-8")):
        if fact["flag"] in _MISSING.get(STORY.release, ()):
            continue
        more = {key: value for key, value in fact.items() if key not in ("flag", "type")}
        if "type" in fact:
            more["type"] = _TYPES[fact["type"]]
        parser.add_argument(fact["flag"], **more)
    return parser.parse_args(argv)


class _Client:
    """One connection per request, as the real one makes them."""

    def __init__(self, base: Any) -> None:
        self._host, self._port = base.hostname, base.port or 80

    def get(self, path: str) -> Any:
        connection = HTTPConnection(self._host, self._port, timeout=600)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def generate(self, body: dict[str, Any], output: Output) -> None:
        """Send one request and write what comes into `output`, by the real one's rules of what a success is."""
        connection = HTTPConnection(self._host, self._port, timeout=6 * 3600)
        output.begun = last = time.perf_counter()
        try:
            connection.request("POST", "/generate", json.dumps(body), {"content-type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                output.error = reply.reason or ""
                return
            tokens = 0
            for line in reply if body["stream"] else [b"data: " + reply.read()]:
                chunk = line.strip().removeprefix(b"data: ")
                if not chunk or chunk == b"[DONE]":
                    continue
                data = json.loads(chunk)
                now = time.perf_counter()
                output.latency = now - output.begun
                if data.get("text"):  # without text nothing is timed, and the asked length stays the output's length
                    output.text = data["text"]
                    output.length = data["meta_info"]["completion_tokens"]
                    if output.ttft == 0.0:
                        output.ttft = now - output.begun
                    elif output.length > tokens:
                        output.itls += [(now - last) / (output.length - tokens)] * (output.length - tokens)
                    last, tokens = now, output.length
            output.latency = output.latency or time.perf_counter() - output.begun
            output.success = True
        except (OSError, HTTPException, ValueError) as e:
            output.error = f"Traceback (most recent call last):\n{type(e).__name__}: {e}\n"
            print(f"output.error={output.error!r}")
        finally:
            connection.close()


def _wait_until_ready(url: str, client: _Client, limit_s: float) -> None:
    if not limit_s:
        return
    print(f"Waiting up to {limit_s}s for {url}/v1/models to become ready...")
    begun = time.perf_counter()
    while time.perf_counter() - begun < limit_s:
        try:
            client.get("/v1/models")
        except (OSError, HTTPException, ValueError):
            time.sleep(min(1.0, limit_s / 10))
            continue
        print(f"Server ready in {time.perf_counter() - begun:.1f}s.")
        return
    print(f"Server at {url} is not ready. Exiting.")
    sys.exit(1)


def _prompts(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.dataset_name not in ("random-ids", "random") or (args.dataset_name == "random" and not args.dataset_path):
        raise ConnectionError(f"cannot download the data set '{args.dataset_name}': this host has no network")
    draw = random.Random(args.seed)
    prompts = []
    for n in range(args.num_prompts):
        length, out = (
            draw.randint(max(int(full * args.random_range_ratio), 1), full)
            for full in (args.random_input_len, args.random_output_len)
        )
        offset = draw.randrange(_VOCABULARY)
        ids = [(offset + n + place) % _VOCABULARY for place in range(length)]
        prompts.append({"ids": ids, "len": length, "out": out})
    return prompts


def _body(args: argparse.Namespace, prompt: dict[str, Any]) -> dict[str, Any]:
    params = {
        "temperature": getattr(args, "temperature", 0.0), "max_new_tokens": prompt["out"],
        "ignore_eos": not args.disable_ignore_eos, "top_p": args.top_p,
    }
    body: dict[str, Any] = {"sampling_params": params, "stream": not args.disable_stream}
    body |= {"input_ids": prompt["ids"]} if args.tokenize_prompt else {"text": wording(prompt["ids"])}
    if args.return_logprob:
        body["return_logprob"] = True
    for key, value in json.loads(args.extra_request_body or "{}").items():
        body[key] = {**body[key], **value} if isinstance(body.get(key), dict) else value
    return body


def _warm_up(args: argparse.Namespace, base: Any, prompts: list[dict[str, Any]]) -> None:
    if not args.warmup_requests:
        return
    print(f"Starting warmup with {args.warmup_requests} sequences...")
    outputs = [Output(length=min(prompts[0]["out"], 32)) for _ in range(args.warmup_requests)]
    for output in outputs:
        _Client(base).generate(_body(args, {**prompts[0], "out": output.length}), output)
    if not any(o.success for o in outputs):
        raise ValueError(
            "Warmup failed - Please make sure benchmark arguments are correctly specified. "
            f"Error: {outputs[0].error}"
        )
    print(f"Warmup completed with {args.warmup_requests} sequences. Starting main benchmark run...")


def _run(args: argparse.Namespace, base: Any, prompts: list[dict[str, Any]]) -> list[Output]:
    outputs = [Output(length=prompt["out"]) for prompt in prompts]
    work: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    done = [0]

    def send() -> None:
        while (n := work.get()) is not None:
            _Client(base).generate(_body(args, prompts[n]), outputs[n])
            done[0] += 1
            if not args.disable_tqdm:
                share = done[0] / len(prompts)
                plain(f"\r{share * 100:3.0f}%|{'█' * int(10 * share):<10}| {done[0]}/{len(prompts)}")

    workers = [threading.Thread(target=send) for _ in range(min(args.max_concurrency or len(prompts), len(prompts)))]
    for worker in workers:
        worker.start()
    draw = random.Random(args.seed)
    for n in range(len(prompts)):
        work.put(n)
        if not math.isinf(args.request_rate):
            time.sleep(draw.expovariate(args.request_rate))
    for _ in workers:
        work.put(None)
    for worker in workers:
        worker.join()
    plain("\n")
    return outputs


def _report(
    args: argparse.Namespace, client: _Client, prompts: list[dict[str, Any]], outputs: list[Output], duration_s: float
) -> None:
    if not any(o.success for o in outputs):
        plain("UserWarning: All requests failed. This is likely due to a misconfiguration\n")
        raise IndexError("index -1 is out of bounds for axis 0 with size 0")
    result = record(args, [p["len"] for p in prompts], outputs, duration_s, lambda text: len(to_pieces(text)))
    result["server_info"] = client.get("/server_info")
    print(table(result, args))
    if args.output_details:
        result |= {
            "input_lens": [p["len"] for p in prompts], "output_lens": [o.length if o.success else 0 for o in outputs],
            "ttfts": [o.ttft for o in outputs], "itls": [o.itls for o in outputs],
            "generated_texts": [o.text for o in outputs], "errors": [o.error for o in outputs],
        }
    name = args.output_file or (
        f"{args.backend}_{time.strftime('%m%d')}_{args.num_prompts}_{args.random_input_len}_{args.random_output_len}.jsonl"
    )
    with open(name, "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
