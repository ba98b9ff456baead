"""bench_serving on a host: a stand-in that says what the real one says, run as a real process."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from settings.source import SETTINGS_DIR, load
from settings.suite import BenchProfile
from tasks.bench import BenchReport, Load, bench, bench_argv
from tasks.deadline import Deadline
from tasks.host import DeadlinePassed, HostLost
from tasks.local_host import LocalHost
from tasks.supervisor import Acquired, Supervisor

REAL = Path(__file__).parents[1] / "corpus" / "real"
SMOKE = load(BenchProfile, SETTINGS_DIR / "suites" / "bench" / "smoke.toml")

CLIENT = """
import argparse, os, sys, time
parser = argparse.ArgumentParser(prog="bench_serving.py", allow_abbrev=True)
for name in "backend host port model tokenizer dataset-name num-prompts max-concurrency warmup-requests seed".split():
    parser.add_argument("--" + name)
for name in "output-file random-input-len random-output-len random-range-ratio".split() + os.environ["NEWER"].split():
    parser.add_argument("--" + name)
for name in ("output-details", "disable-tqdm", *os.environ["FLAGS"].split()):
    parser.add_argument("--" + name, action="store_true")
args = parser.parse_args()
print(" ".join(sys.argv[1:]))
if os.environ.get("RECORD"):
    open(args.output_file, "a").write(open(os.environ["RECORD"]).read())
time.sleep(float(os.environ.get("LASTS", "0")))
sys.exit(os.environ.get("ENDS") or 0)
"""
NEWER = "ready-check-timeout-sec temperature"


class Bench:
    """Runs the stand-in; `env` says what it does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        package = folder / "site" / "sglang"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "bench_serving.py").write_text(CLIENT)
        self.supervisor = Supervisor(
            LocalHost(), state_dir=str(folder / "state"), python=sys.executable, run_id="r", owner="me", lease_s=60
        )
        self.runs = 0

    def __call__(
        self, profile: BenchProfile = SMOKE, within_s: float = 60, id: str | None = None,
        look: Callable[[], bool] = lambda: False, **env: str,
    ) -> BenchReport:  # fmt: skip
        self.runs += 1
        usual = {"PYTHONPATH": str(self.folder / "site"), "NEWER": NEWER, "FLAGS": "tokenize-prompt"}
        load = Load(
            id or f"load-{self.runs}", sys.executable, 30000, "~/model", env={**usual, **env}, look=look, poll_s=0.05
        )
        return bench(self.supervisor, profile, load, deadline=Deadline.after(within_s))

    @property
    def records(self) -> list[Path]:
        return sorted((self.folder / "state" / "attempts").glob("*/bench.jsonl"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    assert isinstance(made.supervisor.acquire(deadline=Deadline.after(20)), Acquired)
    yield made
    made.supervisor.release(deadline=Deadline.after(30))


def test_a_healthy_run_is_a_valid_point_with_its_raw_line(run: Bench) -> None:
    report = run(RECORD=str(REAL / "bench-healthy.jsonl"))
    assert (None, False, True) == (report.kind, report.client_fault, report.point.valid)
    assert report.raw is not None
    assert 32 == json.loads(report.raw)["completed"]


def test_each_run_writes_a_fresh_file(run: Bench) -> None:
    for _ in range(2):
        run(RECORD=str(REAL / "bench-healthy.jsonl"))
    assert [1, 1] == [path.read_text().count("\n") for path in run.records]


def test_a_load_that_the_host_knows_is_read_and_not_run_again(run: Bench) -> None:
    first = run(id="a-load-1", RECORD=str(REAL / "bench-healthy.jsonl"))
    again = run(id="a-load-1", ENDS="a second run would end like this")
    assert first == again
    assert 1 == run.records[0].read_text().count("\n")


def test_a_load_outlives_the_loss_of_the_host_and_is_found_again(run: Bench) -> None:
    def lost() -> bool:
        raise HostLost("gpu-1: the connection broke")

    healthy = str(REAL / "bench-healthy.jsonl")
    with pytest.raises(HostLost):
        run(id="a-load-1", look=lost, RECORD=healthy, LASTS="1.5")
    seen: list[str] = []

    def look() -> bool:
        seen.append(run.supervisor.status("a-load-1", deadline=Deadline.after(20)).state)
        return False

    assert run(id="a-load-1", look=look, RECORD=healthy, LASTS="1.5").point.valid
    assert "running" == seen[0], "it went on meanwhile"
    assert 1 == run.records[0].read_text().count("\n"), "and was the only one"


def test_a_host_that_is_slow_to_answer_under_its_load_is_asked_again(run: Bench) -> None:
    late = iter([True, True])

    def look() -> bool:
        if next(late, False):
            raise DeadlinePassed("gpu-1: `status` did not end before its deadline")
        return False

    assert run(look=look, RECORD=str(REAL / "bench-healthy.jsonl"), LASTS="0.5").point.valid
    assert 1 == run.records[0].read_text().count("\n"), "the load went on meanwhile"


def test_whoever_looks_may_end_it(run: Bench) -> None:
    report = run(id="a-load-1", look=lambda: bool(run.records), LASTS="50", RECORD=str(REAL / "bench-healthy.jsonl"))
    assert ("bench_invalid", "bench_serving was ended with its server") == (report.kind, report.why)
    state = run.supervisor.status("a-load-1", deadline=Deadline.after(20))
    assert "exited" == state.state


def test_a_host_that_is_ours_no_more_is_no_fault_of_the_client(run: Bench) -> None:
    run.supervisor.release(deadline=Deadline.after(30))
    report = run()
    assert ("bench_invalid", None) == (report.kind, report.raw)
    assert "the host is not ours any more" in report.why


def test_the_load_test_of_a_nan_server_is_invalid_and_shows_its_signs(run: Bench) -> None:
    report = run(RECORD=str(REAL / "bench-nan.jsonl"))
    assert ("bench_invalid", True, False) == (report.kind, report.nan_signs, report.point.valid)


def test_a_client_that_fails_by_itself_is_named_with_its_last_line(run: Bench) -> None:
    report = run(ENDS="ValueError: Warmup failed")
    assert ("bench_client", True, None) == (report.kind, report.client_fault, report.raw)
    assert report.why.endswith("wrote no record: ValueError: Warmup failed")
    assert report.why == report.point.why


def test_a_refused_connection_is_no_fault_of_the_client(run: Bench) -> None:
    report = run(ENDS="requests.exceptions.ConnectionError: [Errno 111] Connection refused")
    assert ("bench_client", False) == (report.kind, report.client_fault)


def test_a_client_that_never_ends_is_stopped_at_its_own_limit(run: Bench) -> None:
    report = run(SMOKE.model_copy(update={"wall_s": 1.0}), LASTS="50")
    assert ("bench_invalid", True) == (report.kind, "had not ended after 1 s" in report.why)


def test_the_callers_own_deadline_is_not_swallowed(run: Bench) -> None:
    with pytest.raises(DeadlinePassed):
        run(within_s=1.5, id="a-load-1", LASTS="50")
    assert "exited" == run.supervisor.status("a-load-1", deadline=Deadline.after(20)).state


@pytest.mark.parametrize("newer", ["", "temperature", NEWER])
def test_options_that_the_build_refuses_are_left_out(run: Bench, newer: str) -> None:
    report = run(NEWER=newer, FLAGS="", RECORD=str(REAL / "bench-healthy.jsonl"))
    assert (None, False) == (report.kind, "--tokenize-prompt" in report.out)
    assert [name in newer.split() for name in NEWER.split()] == [f"--{name}" in report.out for name in NEWER.split()]


def test_a_build_that_refuses_what_is_needed_is_a_fault_of_the_client(run: Bench) -> None:
    profile = SMOKE.model_copy(update={"dataset": "sharegpt", "dataset_path": "/data/sg.json"})
    report = run(profile)  # this stand-in knows no --dataset-path
    assert ("bench_client", True) == (report.kind, "unrecognized arguments: --dataset-path" in report.why)


def test_the_range_ratio_and_the_home_folder_are_said_outright(run: Bench) -> None:
    out = run(RECORD=str(REAL / "bench-healthy.jsonl")).out.splitlines()[0]
    assert "--random-range-ratio 1.0" in out
    assert f"--model {Path.home()}/model" in out
    assert "--output-details" in out
    assert "--tokenize-prompt" in out


def test_sharegpt_comes_from_the_named_file_only() -> None:
    profile = SMOKE.model_copy(update={"dataset": "sharegpt", "dataset_path": "/data/sg.json"})
    argv = bench_argv(profile, python="python3", port=1, model="/m", path="/o")
    assert "/data/sg.json" == argv[argv.index("--dataset-path") + 1]
    assert not [a for a in argv if a.startswith(("--random-", "--tokenize-prompt"))]
