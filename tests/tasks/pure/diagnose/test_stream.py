"""What a live server's watcher relies on: doom, progress, phases, bounded memory."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from settings.words import Phase
from tasks.pure.diagnose import Diagnoser

Fresh = Callable[[], Diagnoser]
START = (
    b"[2026-01-01 00:00:01] server_args=ServerArgs(model_path='/m')\n"
    b"[2026-01-01 00:00:02 TP0] Load weight begin. avail mem=79.10 GB\n"
)
SERVING = (
    START + b"[2026-01-01 00:01:00 TP0] Load weight end. elapsed=3.86 s\n"
    b"[2026-01-01 00:01:01 TP0] Capture cuda graph begin. avail mem=9 GB\n"
    b"[2026-01-01 00:02:00 TP0] Capture cuda graph end. Time elapsed: 51 s.\n"
    b"[2026-01-01 00:02:01] The server is fired up and ready to roll!\n"
)


def test_a_fatal_line_dooms_at_once_and_a_warning_never(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(SERVING + b"[2026-01-01 00:03:00 TP0] NaN detected in sampler: next_token_logits\n")
    assert diagnoser.fatal is None
    assert "nan" == diagnoser.diagnosis(ended=False).kind
    diagnoser = fresh()
    diagnoser.feed(SERVING + b"TensorCompare.cu:112: Assertion `probability tensor contains either `inf`, `nan`")
    assert diagnoser.fatal is None
    diagnoser.feed(b" or element < 0` failed.\n")
    assert diagnoser.fatal is not None
    assert "nan" == diagnoser.fatal.kind


def test_a_text_that_was_only_quoted_is_forgotten_when_the_server_serves_on(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(SERVING + b"somebody wrote: an illegal memory access was encountered\n")
    assert diagnoser.fatal is not None
    for i in range(40):
        diagnoser.feed(b"[2026-01-01 00:04:%02d TP0] Decode batch, #running-req: 1\n" % (i % 60))
    assert diagnoser.fatal is None
    assert "none" == diagnoser.diagnosis(ended=True).kind


def test_a_server_without_a_port_is_not_ready_whatever_it_calls_itself(fresh: Fresh) -> None:
    """SGLang 0.5.23 on a port that was taken after our look: its last line is the ready line all the same."""
    diagnoser = fresh()
    taken = b"ERROR: [Errno 98] error while attempting to bind on address (..., 30000): address already in use\n"
    ready = SERVING.splitlines(keepends=True)[-1]
    diagnoser.feed(SERVING.removesuffix(ready) + taken + ready)
    assert diagnoser.fatal is not None
    assert ("port", "host") == (diagnoser.diagnosis(ended=True).kind, diagnoser.diagnosis(ended=True).component)


def test_phases_are_logged_with_the_logs_own_time(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(SERVING)
    assert (
        (Phase.ARGS, "2026-01-01 00:00:01"), (Phase.LOAD, "2026-01-01 00:00:02"),
        (Phase.KV_ALLOC, "2026-01-01 00:01:00"),
        (Phase.GRAPH_CAPTURE, "2026-01-01 00:01:01"), (Phase.WARMUP, "2026-01-01 00:02:00"),
    ) == diagnoser.phase_log  # fmt: skip
    before = diagnoser.phase
    diagnoser.feed(b"\n[2026-01-01 00:02:09 TP0] Prefill batch, #new-seq: 1\n")
    assert (Phase.WARMUP, Phase.PREFILL) == (before, diagnoser.phase)


def test_signs_grow_with_a_bar_that_is_drawn_over_itself(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(START)
    seen = [diagnoser.progress.signs]
    for done in (1, 2, 3):
        diagnoser.feed(b"\rloading shards:  %d%% Completed | %d/4 [00:01<00:02,  1.5s/it]" % (25 * done, done))
        seen.append(diagnoser.progress.signs)
    assert sorted(set(seen)) == seen
    assert ("shards 3/4", 0.75) == (diagnoser.progress.text, diagnoser.progress.fraction)


def test_a_log_that_just_stops_is_a_hang_only_once_it_has_ended(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(START)
    assert "none" == diagnoser.diagnosis(ended=False).kind
    assert ("hang", 2) == (diagnoser.diagnosis(ended=True).kind, diagnoser.diagnosis(ended=True).evidence.line)


def test_the_cure_that_the_log_names_comes_with_its_value(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(START + b"RuntimeError: No room for the KV cache. Raise --mem-fraction-static above 0.008\n")
    found = diagnoser.diagnosis(ended=True)
    assert ("--mem-fraction-static", "0.008") == (found.flag, found.value)


def test_memory_is_bounded_by_nothing_that_the_log_holds(fresh: Fresh) -> None:
    diagnoser = fresh()
    flood: list[Any] = [
        b"x" * 10_000_000, b"\0" * 1_000_000, b"\xff\xfe" * 500_000, b"\n" * 100_000,
        b"".join(b"KeyError: 'k%d'\n" % i for i in range(5_000)),
        b"".join(b"%d: Traceback (most recent call last):\n" % (i % 5000) for i in range(1_000)),
        b"".join(b"\r%d%%|##| %d/9999 [00:00<00:01]" % (i % 100, i) for i in range(50_000)),
    ]  # fmt: skip
    diagnoser.feed(SERVING)
    tracemalloc.start()
    for part in flood:
        for at in range(0, len(part), 65_536):
            diagnoser.feed(part[at : at + 65_536])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 4_000_000


def test_evidence_is_found_in_the_middle_of_a_line_of_10_mb(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(SERVING + b"y" * 5_000_000 + b" an illegal memory access was encountered " + b"z" * 5_000_000)
    found = diagnoser.diagnosis(ended=True)
    assert ("cuda_fault", 7) == (found.kind, found.evidence.line)


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\n\n",
        b"[boot] preflight ok: 0 errors\n[boot] start\n",
        b"[2026-01-01 00:00:01] server_args=ServerArgs(model_path='/m')\n",
        b"python3 -m sglang.bench_serving --backend sglang --num-prompts 4\n#Input tokens: 512\n",
    ],
)
def test_a_log_without_a_sign_of_health_is_not_healthy_once_it_has_ended(fresh: Fresh, log: bytes) -> None:
    diagnoser = fresh()
    diagnoser.feed(log)
    assert diagnoser.fatal is None
    assert "none" == diagnoser.diagnosis(ended=False).kind
    found = diagnoser.diagnosis(ended=True)
    assert ("unknown", None) == (found.kind, found.evidence.line)


@pytest.mark.parametrize(
    "log",
    [
        b'INFO:     10.0.0.2:4711 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n',
        b"[2026-01-01 00:00:01 TP8] Decode batch, #running-req: 3\n",
        b"#Input tokens: 512\n============ Serving Benchmark Result ============\nSuccessful requests:   4\n",
        b"[2026-01-01 00:00:01] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...\n",
    ],
)
def test_one_sign_of_health_is_enough(fresh: Fresh, log: bytes) -> None:
    diagnoser = fresh()
    diagnoser.feed(b"somebody's tail of a log\n" + log)
    assert "none" == diagnoser.diagnosis(ended=True).kind


def test_a_server_that_is_starting_is_quiet_wherever_it_is_asked(fresh: Fresh, labelled: Any) -> None:
    for case in labelled:
        if case.labels["kind"] != "none" or len(case.log) > 100_000:
            continue
        diagnoser = fresh()
        for line in case.log.split(b"\n"):
            diagnoser.feed(line + b"\n")
            if diagnoser.phase in {Phase.ARGS, Phase.LOAD, Phase.KV_ALLOC, Phase.GRAPH_CAPTURE}:
                assert (case.id, None, "none") == (case.id, diagnoser.fatal, diagnoser.diagnosis(ended=False).kind)


@pytest.mark.parametrize(
    ("steps", "culprit"),
    [
        ((b"TP0] Load weight begin.", b"TP1] Load weight begin."), 1),
        ((b"TP0] Load weight begin.", b"TP1] Load weight begin.", b"TP0] Load weight end. type=X"), 2),
        ((b"TP0] Load weight begin.", b"TP0] Load weight end. elapsed=3 s", b"TP0] Capture cuda graph begin."), 3),
        ((b"TP0] Init torch distributed begin.", b"TP0] Init torch distributed ends.", b"TP0] Load weight begin."), 3),
        ((b"TP0] Capture cuda graph begin.", b"TP0] Capture cuda graph end.", b"TP0] Capture draft begin."), 3),
    ],
)  # fmt: skip
def test_a_hang_is_laid_to_the_begin_that_its_own_rank_left_open(
    fresh: Fresh, steps: tuple[bytes, ...], culprit: int
) -> None:
    diagnoser = fresh()
    diagnoser.feed(b"".join(b"[2026-01-01 00:00:02 " + step + b"\n" for step in steps))
    found = diagnoser.diagnosis(ended=True)
    assert ("hang", culprit) == (found.kind, found.evidence.line)
    assert "unknown" == diagnoser.diagnosis(ended=True, exited=True).kind


@pytest.mark.parametrize(
    "sign",
    [b"[2026-01-01 00:02:01] Starting dummy health check server at 0.0.0.0:30000\n",
     b"[2026-01-01 00:02:01 TP8] Decode batch, #running-req: 3\n"],
)  # fmt: skip
def test_a_node_that_is_never_fired_up_is_healthy_when_it_computes(fresh: Fresh, sign: bytes) -> None:
    diagnoser = fresh()
    diagnoser.feed(SERVING.rsplit(b"[", 1)[0])
    assert "hang" == diagnoser.diagnosis(ended=True).kind
    diagnoser.feed(sign)
    assert "none" == diagnoser.diagnosis(ended=True).kind
    diagnoser.feed(b"[2026-01-01 00:02:02] INFO: a line that says nothing\n")
    assert Phase.DECODE is diagnoser.phase


def test_a_peers_complaint_is_no_cause_while_serving_and_one_before(fresh: Fresh) -> None:
    gone = (
        b"[2026-01-01 00:03:00 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 3, in broadcast\n'
        b"RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection reset by peer [10.0.3.1]:42133\n"
    )
    for before, kind in ((START, "nccl"), (SERVING, "unknown")):
        diagnoser = fresh()
        diagnoser.feed(before + gone)
        assert kind == diagnoser.diagnosis(ended=True).kind


def test_a_refused_request_is_no_refused_config(fresh: Fresh) -> None:
    diagnoser = fresh()
    diagnoser.feed(
        SERVING + b"Traceback (most recent call last):\n"
        b'  File "/usr/lib/python3/dist-packages/fastapi/routing.py", line 3, in app\n'
        b"pydantic_core._pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest\n"
        b"messages\n  Field required [type=missing, input_value={}, input_type=dict]\n"
    )
    assert diagnoser.fatal is None
    assert "none" == diagnoser.diagnosis(ended=True).kind
