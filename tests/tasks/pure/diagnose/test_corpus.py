"""The labelled logs, and what never changes a verdict: prefixes, other ranks, chunks, cuts and aftermath."""

import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.pure.diagnose import Diagnoser

CORPUS = Path(__file__).resolve().parents[3] / "corpus"
Fresh = Callable[[], Diagnoser]
LARGE = 24_000  # bytes; longer logs say nothing more under these properties

# Their cause is one only because of what follows it, so nothing can be known at the cause itself.
NEEDS_WHAT_FOLLOWS = {"c138", "c169", "c196", "c206"}
# A begin without an end is the cause only for want of any fault.
FOR_WANT_OF_A_FAULT = {"c153"}
PREFIXES = (
    b"sglang-1  | ", b"Nov 09 14:40:10 gpu-a17 launch[4417]: ", b"> ", b"2026-01-02T03:04:05.678Z stdout F ",
    b"ERROR 2026-05-22T11:20:23.217Z [severity: ERROR] ", b"[2026-06-18 12:36:59] ERROR: ", b"(SGLangEngine pid=512) ",
    b"\x1b[35m",
)  # fmt: skip
AFTERMATH = (
    b"[rank1]:[E1023 17:02:21.3 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective "
    b"operation timeout: WorkNCCL(SeqNum=3) ran for 600018 milliseconds",
    b"[rank2]:[W1023 17:02:21.4 TCPStore.cpp:125] [c10d] recvValue failed on "
    b"SocketImpl(fd=80): Connection reset by peer",
    b"[2026-10-23 17:02:21] Received sigquit from a child process. It usually means the child failed.",
    b"[2026-10-23 17:02:21] kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    b"OSError: [Errno 28] No space left on device: '/tmp/crash_dump'",
    b"Killed",
)


@lru_cache(maxsize=512)
def verdict(fresh: Fresh, log: bytes) -> tuple[str, int | None]:
    diagnoser = fresh()
    diagnoser.feed(log)
    found = diagnoser.diagnosis(ended=True)
    return found.kind, found.evidence.line


def the_small(labelled: Any) -> list[Any]:
    return [c for c in labelled if len(c.log) < LARGE]


def test_every_label_is_met_and_no_healthy_log_is_called_broken(fresh: Fresh, labelled: Any) -> None:
    wrong, far, parts = [], [], {"phase": 0, "component": 0, "action": 0}
    for case in labelled:
        diagnoser = fresh()
        diagnoser.feed(case.log)
        found = diagnoser.diagnosis(ended=True)
        if found.kind != case.labels["kind"]:
            wrong.append((case.id, found.kind))
        if case.labels["cause_line"] is not None and found.evidence.line != case.labels["cause_line"]:
            far.append((case.id, found.evidence.line))
        for part in parts:
            parts[part] += getattr(found, part) == case.labels[part]
    assert ([], []) == (wrong, far)
    assert parts["action"] / len(labelled) >= 0.97
    assert parts["component"] / len(labelled) >= 0.97
    assert parts["phase"] / len(labelled) >= 0.97


@pytest.mark.parametrize("size", [1, 61, 4096])
def test_no_chunking_changes_a_verdict(fresh: Fresh, labelled: Any, size: int) -> None:
    some = [c for c in labelled if len(c.log) < (4_000 if size == 1 else LARGE)]
    for case in some if size == 1 else some[size % 2 :: 2]:
        diagnoser = fresh()
        for at in range(0, len(case.log), size):
            diagnoser.feed(case.log[at : at + size])
        found = diagnoser.diagnosis(ended=True)
        assert (case.id, *verdict(fresh, case.log)) == (case.id, found.kind, found.evidence.line)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_prefix_changes_a_verdict(fresh: Fresh, labelled: Any, prefix: bytes) -> None:
    for case in the_small(labelled)[PREFIXES.index(prefix) % 3 :: 3]:
        lines = case.log.split(b"\n")
        prefixed = b"\n".join(prefix + line for line in lines[:-1]) + b"\n" + (prefix + lines[-1] if lines[-1] else b"")
        assert (case.id, *verdict(fresh, case.log)) == (case.id, *verdict(fresh, prefixed))


def test_two_nodes_in_one_log_give_the_first_ones_cause(fresh: Fresh, labelled: Any) -> None:
    for case in the_small(labelled):
        if case.labels["phase"] == "bench" or case.labels["kind"] in {"none", "unknown"}:
            continue
        lines = case.log.rstrip(b"\n").split(b"\n")
        both = b"".join(b"0: " + line + b"\n1: " + line + b"\n" for line in lines)
        kind, line = verdict(fresh, case.log)
        assert (case.id, kind, 2 * (line or 0) - 1) == (case.id, *verdict(fresh, both))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_after_the_cause_changes_nothing(fresh: Fresh, labelled: Any, data: st.DataObject) -> None:
    broken = [c for c in the_small(labelled) if c.labels["cause_line"] and c.id not in NEEDS_WHAT_FOLLOWS]
    case = data.draw(st.sampled_from(broken), label="case")
    lines = case.log.split(b"\n")
    kept = data.draw(st.integers(case.labels["cause_line"], len(lines)), label="lines kept")
    assert (case.labels["kind"], case.labels["cause_line"]) == verdict(fresh, b"\n".join(lines[:kept]) + b"\n")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_aftermath_changes_nothing(fresh: Fresh, labelled: Any, data: st.DataObject) -> None:
    broken = [
        c
        for c in the_small(labelled)
        if c.labels["cause_line"] and c.labels["kind"] != "unknown" and c.labels["phase"] != "bench"
        and c.id not in FOR_WANT_OF_A_FAULT
    ]
    case = data.draw(st.sampled_from(broken), label="case")
    after = data.draw(st.lists(st.sampled_from(AFTERMATH), min_size=1, max_size=8), label="aftermath")
    assert verdict(fresh, case.log) == verdict(fresh, case.log.rstrip(b"\n") + b"\n" + b"\n".join(after) + b"\n")


def test_every_message_is_read_as_its_kind_component_and_action(fresh: Fresh) -> None:
    wrong = []
    for message in tomllib.loads((CORPUS / "messages.toml").read_text(encoding="utf-8"))["message"]:
        diagnoser = fresh()
        diagnoser.feed(around(message["phase"], message["frame"], message["text"]).encode())
        found = diagnoser.diagnosis(ended=True)
        got = [found.kind, str(found.component), str(found.action)]
        if got != [message["kind"], message["component"], message["action"]]:
            wrong.append((message["text"], got))
    assert [] == wrong


@pytest.mark.parametrize("base", ["c012"])
def test_no_benign_line_makes_a_healthy_log_sick(fresh: Fresh, labelled: Any, base: str) -> None:
    healthy = next(c for c in labelled if c.id == base).log.decode().split("\n")
    at = [
        i
        for i, line in enumerate(healthy)
        if "Load weight begin" in line or "Load weight end" in line or "fired up" in line
    ]
    alarms = []
    places = (0, at[0] + 1, at[-2] + 1, at[-1] - 1, at[-1] + 1, at[-1] + 4, len(healthy) - 1)
    for n, line in enumerate(tomllib.loads((CORPUS / "benign.toml").read_text(encoding="utf-8"))["lines"]):
        for place in (places[(n + turn) % len(places)] for turn in (0, 3)):
            log = "\n".join([*healthy[:place], line, *healthy[place:]])
            if (kind := verdict(fresh, log.encode())[0]) != "none":
                alarms.append((kind, place, line))
    assert [] == alarms


def test_a_healthy_log_may_end_anywhere_once_it_serves(fresh: Fresh, labelled: Any) -> None:
    for case in labelled:
        if case.labels["kind"] != "none" or case.labels["phase"] == "bench":
            continue
        lines = case.log.split(b"\n")
        ready = max(i for i, line in enumerate(lines) if b"fired up" in line)
        diagnoser = fresh()
        diagnoser.feed(b"\n".join(lines[:ready]) + b"\n")
        for line in lines[ready:]:
            diagnoser.feed(line + b"\n")
            assert (case.id, "none") == (case.id, diagnoser.diagnosis(ended=True).kind)


PACKAGES = "/usr/lib/python3/dist-packages"
LOAD = ["server_args=ServerArgs(model_path='/m')", "Load weight begin. avail mem=79.10 GB"]
KV = [*LOAD, "Load weight end. elapsed=3.86 s, type=X, avail mem=16.18 GB"]
GRAPH = [
    *KV,
    "Memory pool end. avail mem=15.87 GB",
    "Capture cuda graph begin. This can take up to several minutes. avail mem=15 GB",
]
WARMUP = [*GRAPH, "Capture cuda graph end. Time elapsed: 51.80 s.", "INFO:     Uvicorn running on http://0.0.0.0:30000"]
SERVING = [*WARMUP, "The server is fired up and ready to roll!"]
BEFORE = {
    "args": [], "load": LOAD, "kv": KV, "graph": GRAPH, "warmup": WARMUP,
    "prefill": [*SERVING, "Prefill batch, #new-seq: 1"], "decode": [*SERVING, "Decode batch, #running-req: 1"],
}  # fmt: skip


def around(phase: str, frame: str, text: str) -> str:
    """A log that comes to `phase` and then to `text`, raised in `frame` where there is one."""
    lines = [f"[2026-01-01 00:00:0{i % 10}{' TP0' if i else ''}] {line}" for i, line in enumerate(BEFORE[phase])]
    if frame:
        path, function = frame.rsplit(":", 1)
        lines.append(
            "Traceback (most recent call last):"
            if phase == "args"
            else "Scheduler hit an exception: Traceback (most recent call last):"
        )
        if phase != "args":
            lines += [
                f'  File "{PACKAGES}/sglang/srt/managers/scheduler.py", line 3, in run_scheduler_process',
                "    s = S()",
            ]
        lines += [f'  File "{PACKAGES}/{path}", line 33, in {function}', "    ret = fn(batch)"]
    lines += text.split("\n")
    if phase != "args":
        lines += ["", "[2026-01-01 00:01:02] Received sigquit from a child process. It usually means the child failed."]
    return "\n".join(lines) + "\n"
