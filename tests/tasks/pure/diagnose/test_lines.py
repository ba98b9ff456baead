import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pure.diagnose.lines import LINE_LIMIT, Splitter, clean


@pytest.mark.parametrize(
    ("raw", "text", "rank", "stamp"),
    [
        (b"[2026-03-07 20:20:30 DP1 TP10] Load weight begin.", "Load weight begin.", "DP1 TP10", "2026-03-07 20:20:30"),
        (b"sglang-1  | [2026-05-10 07:01:08 TP0] Decode batch", "Decode batch", "TP0", "2026-05-10 07:01:08"),
        (b"(Worker_TP1 pid=6) ERROR 08-24 22:12:50 [c.py:7] KeyError: 'x'", "KeyError: 'x'", "TP1", "08-24 22:12:50"),
        (b"[rank2]:[E1021 20:59:24.7 NCCL.cpp:685] [Rank 2] Watchdog caught", "Watchdog caught", "rank2", None),
        (b"Oct 21 20:48:23 gpu-a17 launch[4417]: kernel: x", "kernel: x", None, None),
        (b"0: slurmstepd: error: y", "slurmstepd: error: y", None, None),
        (b'{"log":"ValueError: z\\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}', "ValueError: z", None, None),
        (b"[2026-06-18 12:36:59] ERROR: KeyError: 'glm_dsa'", "KeyError: 'glm_dsa'", None, "2026-06-18 12:36:59"),
        (b"\rload:   0%|  | 0/9\rload: 50%|# | 4/9\rOSError: gone", "OSError: gone", None, None),
        (b"caf\xff", "caf\ufffd", None, None),
    ],
)  # fmt: skip
def test_a_line_loses_what_others_put_before_it(raw: bytes, text: str, rank: str | None, stamp: str | None) -> None:
    line = clean(1, raw)
    assert (text, rank, stamp) == (line.text, line.rank, line.stamp)


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 50))
def test_lines_are_counted_by_newlines_whatever_the_chunks(lines: list[bytes], size: int) -> None:
    log = b"\n".join(line.replace(b"\x1b", b"") for line in lines) + b"\n"
    splitter = Splitter()
    blocks = [b for at in range(0, len(log), size) for b in splitter.feed(log[at : at + size])]
    assert log.replace(b"\0", b"") == b"".join(b.data for b in blocks)
    assert [1 + sum(b.ends for b in blocks[:i]) for i in range(len(blocks))] == [b.first for b in blocks]


def test_a_line_without_end_is_held_in_bounded_memory() -> None:
    splitter = Splitter()
    for _ in range(200):
        for block in splitter.feed(b"x" * 100_000):
            assert block.first == 1
            assert len(block.data) <= LINE_LIMIT
        assert len(splitter.held) <= LINE_LIMIT


def test_colours_and_nuls_are_gone_from_a_block() -> None:
    (block,) = Splitter().feed(b"\x1b[1;31mValue\x1b[0m\0Error\x1b]0;title\x07: x\n")
    assert b"ValueError: x\n" == block.data
