"""bench_serving on a host: a stand-in that says what the real one says, run as a real process."""

import json
import sys
from pathlib import Path

import pytest

from settings.source import SETTINGS_DIR, load
from settings.suite import BenchProfile
from tasks.bench import BenchReport, bench, bench_argv
from tasks.deadline import Deadline
from tasks.host import DeadlinePassed
from tasks.local_host import LocalHost

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

    def __call__(self, profile: BenchProfile = SMOKE, within_s: float = 60, **env: str) -> BenchReport:
        usual = {"PYTHONPATH": str(self.folder / "site"), "NEWER": NEWER, "FLAGS": "tokenize-prompt"}
        with LocalHost(env={**usual, **env}) as host:
            return bench(
                host, profile, python=sys.executable, port=30000, model="~/model", folder=str(self.folder / "out"),
                deadline=Deadline.after(within_s),
            )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_healthy_run_is_a_valid_point_with_its_raw_line(run: Bench) -> None:
    report = run(RECORD=str(REAL / "bench-healthy.jsonl"))
    assert (None, False, True) == (report.kind, report.client_fault, report.point.valid)
    assert report.raw is not None
    assert 32 == json.loads(report.raw)["completed"]


def test_each_run_writes_a_fresh_file(run: Bench) -> None:
    for _ in range(2):
        run(RECORD=str(REAL / "bench-healthy.jsonl"))
    written = sorted((run.folder / "out").iterdir())
    assert [1, 1] == [path.read_text().count("\n") for path in written]


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
        run(within_s=1.5, LASTS="50")


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
    out = run(RECORD=str(REAL / "bench-healthy.jsonl")).out
    assert "--random-range-ratio 1.0" in out
    assert f"--model {Path.home()}/model" in out
    assert "--output-details" in out
    assert "--tokenize-prompt" in out


def test_sharegpt_comes_from_the_named_file_only() -> None:
    profile = SMOKE.model_copy(update={"dataset": "sharegpt", "dataset_path": "/data/sg.json"})
    argv = bench_argv(profile, python="python3", port=1, model="/m", path="/o")
    assert "/data/sg.json" == argv[argv.index("--dataset-path") + 1]
    assert not [a for a in argv if a.startswith(("--random-", "--tokenize-prompt"))]
