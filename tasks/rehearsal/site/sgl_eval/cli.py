"""A stand-in for sgl-eval 0.1.3: asks the served API the questions of a file, and writes what the real one writes."""

import argparse
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["main"]


def main() -> int:
    args = _parse()
    rows = [json.loads(line) for line in Path(args.from_dataset).read_text(encoding="utf-8").splitlines()]
    begun = time.perf_counter()
    with ThreadPoolExecutor(args.num_threads) as pool:
        said = list(pool.map(lambda row: _ask(args, row["problem"]), rows))
    seconds = time.perf_counter() - begun
    right = [_number(text) == row["expected_answer"] for text, row in zip(said, rows, strict=True)]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    out = Path(args.out_dir) / f"sgl_eval_{args.name}_{stamp}"
    out.mkdir(parents=True)
    metrics = {
        "aggregate": {"error_rate": 0.0, "score": sum(right) / len(rows), "stop_rate": 1.0, "truncated_rate": 0.0},
        "base_url": args.base_url, "latency_seconds": seconds, "n_repeats": args.n_repeats, "name": args.name,
        "num_examples": len(rows), "num_threads": args.num_threads, "sgl_eval_version": "0.1.3", "timestamp": stamp,
    }
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2), encoding="utf-8")
    with (out / "output-rs0.jsonl").open("w", encoding="utf-8") as file:
        for row, text, correct in zip(rows, said, right, strict=True):
            file.write(json.dumps({**row, "generation": text, "symbolic_correct": correct}) + "\n")
    print(f"* score = {sum(right) / len(rows):.3f}")
    print(f"\nMetrics: {out / 'metrics.json'}\nPredictions: {out}  (1 jsonl file(s))")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sgl-eval")
    parser.add_argument("command", choices=["run"])
    parser.add_argument("name")
    for name in ("base-url", "from-dataset", "out-dir"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("max-tokens", 2048), ("num-threads", 64), ("n-repeats", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--thinking", action=argparse.BooleanOptionalAction)
    return parser.parse_args()


def _ask(args: argparse.Namespace, problem: str) -> str:
    to = urlsplit(args.base_url)
    body: dict[str, Any] = {
        "model": "default", "messages": [{"role": "user", "content": problem}], "max_tokens": args.max_tokens,
        "temperature": args.temperature,
    }
    path, kind = f"{to.path}/chat/completions", {"content-type": "application/json"}
    connection = HTTPConnection(to.hostname or "127.0.0.1", to.port or 80, timeout=300)
    try:
        connection.request("POST", path, json.dumps(body), kind)
        return str(json.loads(connection.getresponse().read())["choices"][0]["message"]["content"])
    finally:
        connection.close()


def _number(text: str) -> str:
    """The first number of an answer."""
    found = re.search(r"-?\d+", text)
    return found[0] if found else ""
