"""The judge of replies against real servers: no alarm for a sound one however often it is asked, and late NaN found."""

from collections import Counter
from pathlib import Path

import httpx
import pytest

from settings.source import SETTINGS_DIR, load
from settings.suite import DecodeSuite
from settings.words import AttemptOutcome, ExitCode, RunOutcome, Stage, Verdict
from tasks.deadline import Deadline
from tasks.decode import DecodeReport, decode
from tests.real.conftest import WriteTarget
from tests.real.server import READY, RealServer, serve
from tests.real.walk import assert_host_is_empty, bring_up

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800), pytest.mark.usefixtures("real_environment")]

NUMBERS = load(DecodeSuite, SETTINGS_DIR / "suites" / "numbers.toml")
RUNS = 20


def test_a_sound_server_is_never_called_anything_else(tmp_path: Path) -> None:
    with serve("ovf", tmp_path, dtype="bfloat16") as server:
        server.wait_for_line(READY)
        reports = [_judged(server) for _ in range(RUNS)]
    assert {None: RUNS} == Counter(r.kind for r in reports), [r.why for r in reports if r.kind]
    assert {Verdict.OK} == {v.verdict for r in reports for v in r.verdicts}


@pytest.mark.parametrize(
    ("form", "probe"), [("long", "above-2048"), pytest.param("late", "asked-count", marks=pytest.mark.chaos)]
)
def test_nan_that_short_requests_do_not_meet_is_found_by_the_probe_that_is_there_for_it(
    form: str, probe: str, tmp_path: Path
) -> None:
    with serve(form, tmp_path, dtype="float16") as server:
        server.wait_for_line(READY)
        report = _judged(server)
    found = [v.id for v in report.verdicts if v.verdict is Verdict.NAN]
    assert ("nan", [probe]) == (report.kind, found), report.verdicts
    before = report.verdicts[: [v.id for v in report.verdicts].index(probe)]
    assert before, "the short greedy requests come first"
    assert {Verdict.OK} == {v.verdict for v in before}, "to all short requests this server is sound"


@pytest.mark.chaos
@pytest.mark.sshd
def test_a_server_that_is_sound_until_it_is_loaded_fails_in_the_load_at_a_known_moment_and_the_cure_raises_no_alarm(
    write_target: WriteTarget, tmp_path: Path
) -> None:
    record, _ = bring_up(write_target("late"), "real-under-load", tmp_path)
    broken, cured = record.attempts

    assert ("float16", AttemptOutcome.FAILED, Stage.BENCH) == (broken.rung, broken.outcome, broken.failed_stage)
    assert {Verdict.OK} == {v.verdict for v in broken.decode}, "to the decode suite it was sound"
    assert broken.diagnosis is not None
    assert broken.diagnosis.kind == "nan"
    assert broken.load is not None
    last = broken.load.samples[-1]
    assert f"{last.into_s:.1f} s into the load test (long-answers, 8 at once)" in broken.diagnosis.means
    assert Verdict.NAN is last.verdict
    assert [p.valid for p in broken.bench] == [False], "it was ended in the middle"

    assert (RunOutcome.SERVING, cured.n) == (record.outcome, record.winner)
    assert cured.load is not None
    assert len(cured.load.samples) >= 3
    assert {Verdict.OK} == {s.verdict for s in cured.load.samples}
    assert [p.valid for p in cured.bench] == [True]
    assert_host_is_empty(tmp_path)


@pytest.mark.chaos
@pytest.mark.sshd
@pytest.mark.parametrize("form", ["ovf", "bang"])
def test_an_all_nan_server_does_not_get_past_a_ladder_that_leaves_decode_out(
    form: str, write_target: WriteTarget, tmp_path: Path
) -> None:
    record, _ = bring_up(write_target(form), "real-no-decode", tmp_path, ends=ExitCode.NOT_SERVING)
    (broken,) = record.attempts
    assert (AttemptOutcome.FAILED, "nan") == (broken.outcome, broken.diagnosis and broken.diagnosis.kind)
    assert broken.failed_stage in (Stage.BENCH, Stage.RECHECK)
    assert record.winner is None
    assert_host_is_empty(tmp_path)


def _judged(server: RealServer) -> DecodeReport:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60.0, trust_env=False) as client:
        return decode(client, NUMBERS, deadline=Deadline.after(300))
