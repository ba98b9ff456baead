"""The load test: the build's own bench_serving, run on the host, and read with distrust (tasks/pure/bench.py)."""

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from settings.load_test import Slo
from settings.suite import BenchProfile
from tasks.deadline import Deadline
from tasks.host import Completed, DeadlinePassed, Host
from tasks.pure.bench import read_bench, redacted
from tasks.pure.record import BenchPoint

__all__ = ["BenchReport", "bench", "bench_argv"]

# Since 0.5.15 a shim over sglang.benchmark.serving; this name works in all releases (0.5.8 to 0.5.23).
_MODULE = "sglang.bench_serving"
_CHUNK = 4 * 1024 * 1024
_LARGEST = 256 * 1024 * 1024  # a record with the details of 10,000 requests of 1k tokens has some 60 MB
_NEWER: dict[str, tuple[str, ...]] = {  # not in all releases; older ones come close without
    "--ready-check-timeout-sec": ("10",),  # since 0.5.10
    "--temperature": ("0",),  # since 0.5.10; before, always greedy
    "--tokenize-prompt": (),  # sent as ids: as text, 64 random ids were 57 to 192 tokens for the server
}
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)")
_REFUSED = re.compile(r"Connection refused|Cannot connect|Connection reset|Server disconnected|is not ready", re.I)


@dataclass(frozen=True, slots=True)
class BenchReport:
    """One run. `kind` is None when the point is valid; `raw` is the record as written, but for secrets.

    bench_client: the client failed by itself; bench_invalid: it wrote a record that measures nothing. With `nan_signs`
    (texts empty, or nothing but "!") it is for the recheck with natural text to say whether the server is nan: random
    token ids can be the cause by themselves. `client_fault` is False where the server was seen to be lost.
    """

    point: BenchPoint
    raw: bytes | None
    out: str
    client_fault: bool
    kind: str | None
    why: str
    nan_signs: bool = False


def bench(
    host: Host,
    profile: BenchProfile,
    *,
    python: str,
    port: int,
    model: str,
    folder: str,
    deadline: Deadline,
    gpus: int | None = None,
    slo: Slo | None = None,
) -> BenchReport:
    """Run one load against the server on the host's port, with a fresh output file in `folder` on the host.

    Raises: HostError when the host is lost, or when `deadline` itself has passed.
    """
    path = f"{_resolved(host, folder)}/bench-{profile.name}-{secrets.token_hex(4)}.jsonl"
    host.put(b"", path, deadline=deadline)  # makes the folder, and fails here rather than after an hour of load
    ended = _run(host, profile, python, port, _resolved(host, model), path, deadline)
    raw = _last_line(host, path, deadline)
    reading = read_bench(raw, profile, gpus=gpus, slo=slo)
    out = f"{ended.out}\n{ended.err}" if ended else ""
    kind, why = _outcome(profile, reading.point, ended, raw)
    lost = reading.server_lost or (kind is not None and bool(_REFUSED.search(out)))
    point = reading.point if kind is None else reading.point.model_copy(update={"valid": False, "why": why})
    return BenchReport(
        point=point,
        raw=redacted(raw) if raw is not None else None,
        out=out,
        client_fault=kind is not None and not lost,
        kind=kind,
        why=why,
        nan_signs=reading.nan_signs,
    )


def bench_argv(
    profile: BenchProfile, *, python: str, port: int, model: str, path: str, without: Collection[str] = ()
) -> tuple[str, ...]:
    """The command. All that matters is said outright: the defaults differ by release, and some of them mislead.

    `without`: options that the build has refused.
    """
    asked: list[tuple[str, str | None]] = [
        ("--backend", "sglang"),
        ("--host", "127.0.0.1"),
        ("--port", str(port)),
        ("--model", model),
        ("--tokenizer", profile.tokenizer or model),
        ("--dataset-name", profile.dataset),
        ("--dataset-path", profile.dataset_path),
        ("--num-prompts", str(profile.prompts)),
        ("--max-concurrency", str(profile.concurrency)),
        ("--warmup-requests", str(profile.warmup_requests)),
        ("--seed", str(profile.seed)),
        ("--output-file", path),
    ]
    if profile.dataset == "random-ids":
        asked += [
            ("--random-input-len", str(profile.input_tokens)),
            ("--random-output-len", str(profile.output_tokens)),
            ("--random-range-ratio", profile.range_ratio),  # 0.0 by default: lengths from 1 up
        ]
    else:
        asked.append(("--sharegpt-output-len", str(profile.output_tokens)))
    said = [part for name, value in asked if value is not None for part in (name, value)]
    unfit = {*without, *(("--tokenize-prompt",) if profile.dataset == "sharegpt" else ())}  # its prompts are text
    newer = [part for name, values in _NEWER.items() if name not in unfit for part in (name, *values)]
    return (python, "-m", _MODULE, *said, *newer, "--output-details", "--disable-tqdm")


def _run(
    host: Host, profile: BenchProfile, python: str, port: int, model: str, path: str, deadline: Deadline
) -> Completed | None:
    """The run, None when it had to be stopped. The build's own parser says which options it does not know."""
    refused: list[str] = []
    while True:
        argv = bench_argv(profile, python=python, port=port, model=model, path=path, without=refused)
        try:
            ended = host.run(argv, deadline=deadline.sooner(profile.wall_s))
        except DeadlinePassed:
            if deadline.passed:
                raise
            return None
        unknown = _UNKNOWN.search(ended.err) if ended.exited == 2 else None
        more = [name for name in _NEWER if unknown and name in unknown[1].split() and name not in refused]
        if not more:
            return ended
        refused += more


def _outcome(
    profile: BenchProfile, point: BenchPoint, ended: Completed | None, raw: bytes | None
) -> tuple[str | None, str]:
    if ended is None:
        return "bench_invalid", f"bench_serving had not ended after {profile.wall_s:g} s and was stopped"
    if raw is None:
        last = next((x for x in reversed(f"{ended.out}\n{ended.err}".splitlines()) if x.strip()), "")
        return "bench_client", f"bench_serving ended with {ended.exited} and wrote no record: {last.strip()[:200]}"
    if ended.exited != 0:
        return "bench_client", f"bench_serving ended with {ended.exited} after writing its record"
    return (None, "") if point.valid else ("bench_invalid", point.why)


def _last_line(host: Host, path: str, deadline: Deadline) -> bytes | None:
    """The last line of a file on the host, None when it has none."""
    got = bytearray()
    while len(got) < _LARGEST:
        chunk = host.read(path, len(got), _CHUNK, deadline=deadline)
        got += chunk.data
        if not chunk.data or (chunk.size is not None and len(got) >= chunk.size):
            break
    lines = [line for line in bytes(got).split(b"\n") if line.strip()]
    return lines[-1] if lines else None


def _resolved(host: Host, path: str) -> str:
    """`~` and `$HOME` at the front as the host's own home: only the first word of a command is resolved by the host."""
    for front in ("~/", "$HOME/"):
        if path.startswith(front):
            return f"{host.home}/{path.removeprefix(front)}"
    return path
