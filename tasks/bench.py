"""The load test: the build's own bench_serving, run on the host, and read with distrust (tasks/pure/bench.py).

It runs under the supervisor, as the server does: it outlives a lost connection, is found again by its id, and ends with
the lease.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from settings.load_test import Slo
from settings.suite import BenchProfile
from settings.target import resolve_path
from tasks.deadline import Deadline, pause
from tasks.host import OUTPUT_LIMIT, DeadlinePassed, Host
from tasks.pure.bench import read_bench, redacted
from tasks.pure.record import BenchPoint
from tasks.runlog import log
from tasks.supervisor import Ended, ExitInfo, NotHeld, ServerSpec, Supervisor

__all__ = ["BenchReport", "Load", "bench", "bench_argv"]

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


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Load:
    """How a load is run. Under an `id` that the host knows it is not begun again: it is waited for, or only read."""

    id: str
    python: str
    port: int  # the server's
    model: str
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    look: Callable[[], bool] = _never  # called while it runs; True ends it
    call_s: float = 30.0  # for one call to the host
    stop_s: float = 60.0  # for its end
    poll_s: float = 1.0


@dataclass(frozen=True, slots=True)
class _Ran:
    """`exited` None: it was ended by us, or nobody saw how."""

    exited: int | None
    said: str
    why: str = ""  # it was ended, and by whom


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
    supervisor: Supervisor, profile: BenchProfile, load: Load, *, deadline: Deadline, gpus: int | None = None,
    slo: Slo | None = None,
) -> BenchReport:  # fmt: skip
    """Run one load against the server on the host's port, or come back to it; its files lie with the attempts.

    Raises: HostError when the host is lost (call it again: the load goes on meanwhile), or when `deadline` has passed.
    """
    host = supervisor.host
    path, ran = _run(supervisor, profile, load, deadline)
    raw = _last_line(host, path, deadline)
    reading = read_bench(raw, profile, gpus=gpus, slo=slo)
    out = ran.said
    kind, why = _outcome(reading.point, ran, raw)
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


def _run(supervisor: Supervisor, profile: BenchProfile, load: Load, deadline: Deadline) -> tuple[str, _Ran]:
    """Where its record is, and how it ran. The build's own parser says which options it does not know."""
    home, refused = supervisor.host.home, list[str]()
    while True:
        id = f"{load.id}.{len(refused)}" if refused else load.id
        path = supervisor.attempt_path(id, "bench.jsonl")
        argv = bench_argv(
            profile, python=load.python, port=load.port, model=resolve_path(load.model, home), path=path,
            without=refused,
        )  # fmt: skip
        ran = _patiently(supervisor, ServerSpec(id, argv, load.env), profile, load, deadline)
        unknown = _UNKNOWN.search(ran.said) if ran.exited == 2 else None
        more = [name for name in _NEWER if unknown and name in unknown[1].split() and name not in refused]
        if not more:
            return path, ran
        refused += more


def _patiently(
    supervisor: Supervisor, spec: ServerSpec, profile: BenchProfile, load: Load, deadline: Deadline
) -> _Ran:
    """As `_wait_for`; a host that is slow to answer under the load is asked again. Raises: DeadlinePassed, HostLost."""
    limit = deadline.sooner(profile.wall_s)
    while True:
        try:
            return _wait_for(supervisor, spec, profile, load, deadline, limit)
        except DeadlinePassed as e:
            if limit.passed:
                supervisor.ask_to_stop(spec.id, deadline=Deadline.after(load.call_s))
                raise
            log.warning("load.not_seen", why=str(e))


def _wait_for(
    supervisor: Supervisor, spec: ServerSpec, profile: BenchProfile, load: Load, deadline: Deadline, limit: Deadline
) -> _Ran:
    """Begin it, or find it, and stay to its end. Raises: DeadlinePassed of one call, or after it was stopped."""
    begun = supervisor.start(spec, deadline=Deadline.after(load.call_s))
    if isinstance(begun, NotHeld):
        return _Ran(None, "", "was not begun: the host is not ours any more")
    ended, stopped = begun.exit if isinstance(begun, Ended) else None, ""
    while ended is None:
        if load.look():
            stopped = "was ended with its server"
        elif limit.passed:
            stopped = f"had not ended after {profile.wall_s:g} s and was stopped"
        if stopped:
            supervisor.stop(spec.id, deadline=Deadline.after(load.stop_s))
            break
        status = supervisor.status(spec.id, deadline=Deadline.after(load.call_s))
        ended = status.exit  # the daemon may yet have to see the end of what runs no more
        if ended is None and status.state != "running" and not status.daemon_alive:
            break
        if ended is None:
            pause(load.poll_s, limit)
    if stopped and deadline.passed:
        raise DeadlinePassed(f"{supervisor.host.name}: the load test {spec.id} was stopped: its run is out of time")
    return _ran(ended, _said(supervisor.host, supervisor.log_path(spec.id), Deadline.after(load.call_s)), stopped)


def _ran(ended: ExitInfo | None, said: str, stopped: str) -> _Ran:
    if stopped or ended is None:
        return _Ran(None, said, stopped or "is gone, and nobody saw how it ended")
    if ended.by != "self":
        return _Ran(None, said, f"was ended by us ({ended.by})")
    return _Ran(ended.code if ended.code is not None else -(ended.signal or 0), said)


def _outcome(point: BenchPoint, ran: _Ran, raw: bytes | None) -> tuple[str | None, str]:
    if ran.exited is None:
        return "bench_invalid", f"bench_serving {ran.why}"
    if raw is None:
        last = next((x for x in reversed(ran.said.splitlines()) if x.strip()), "")
        return "bench_client", f"bench_serving ended with {ran.exited} and wrote no record: {last.strip()[:200]}"
    if ran.exited != 0:
        return "bench_client", f"bench_serving ended with {ran.exited} after writing its record"
    return (None, "") if point.valid else ("bench_invalid", point.why)


def _said(host: Host, path: str, deadline: Deadline) -> str:
    return host.read(path, 0, OUTPUT_LIMIT, deadline=deadline).data.decode("utf-8", "replace")


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

