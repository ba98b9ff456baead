"""Which word a run gets, and whether its paragraph says what, since when, and what to do."""

from datetime import UTC, datetime

import pytest

from settings.words import AttemptOutcome, Phase, RunOutcome
from tasks.pure.comparison import Comparison, Confirmation, Finding
from tasks.pure.record import (
    Attempt,
    Build,
    Diagnosis,
    HostSummary,
    LadderRef,
    RunRecord,
    Source,
)
from tasks.pure.tell import news


def run(outcome: str, day: int, **changes: object) -> RunRecord:
    cause = Diagnosis(kind="nan", phase=Phase.DECODE, means="Every logit is NaN.", try_="Take another KV dtype.")
    failed = Attempt(n=1, id="1", rung="auto", outcome=AttemptOutcome.FAILED, diagnosis=cause)
    base = RunRecord(
        run_id=f"run{day}", started_at=datetime(2026, 11, day, 2, tzinfo=UTC), outcome=RunOutcome(outcome),
        target="gpu8", ladder=LadderRef(name="l", sha256="1"), build=Build(engine="sglang", commit=f"{day}" * 20),
        lease_s=90,
        host=HostSummary(name="gpu8"), attempts=() if outcome == "serving" else (failed,),
    )  # fmt: skip
    return base.model_copy(update=changes)


@pytest.mark.parametrize(
    ("now", "before", "event"),
    [
        ("serving", (), "serving"),
        ("serving", ("serving",), "serving"),
        ("serving", ("exhausted", "serving"), "recovered"),
        ("serving_below_slo", ("stopped",), "recovered"),
        ("exhausted", (), "exhausted"),
        ("exhausted", ("exhausted", "serving"), "exhausted"),
        ("stopped", ("serving",), "regressed"),
        ("exhausted", ("host_lost", "serving"), "regressed"),
        ("host_lost", ("serving",), None),
        ("cancelled", (), None),
    ],
)
def test_the_word_follows_from_this_run_and_the_last_decided_one(
    now: str, before: tuple[str, ...], event: str | None
) -> None:
    found = news(run(now, 20), [run(outcome, 19 - n) for n, outcome in enumerate(before)])
    assert event == (found.event if found else None)


def test_another_target_or_ladder_is_no_history() -> None:
    others = [run("serving", 19, target="gpu9"), run("serving", 18, ladder=LadderRef(name="m", sha256="1"))]
    found = news(run("exhausted", 20), others)
    assert found is not None
    assert ("exhausted", "") == (found.event, found.payload["last_good"])


def test_the_paragraph_says_what_since_when_and_what_to_do() -> None:
    found = news(run("exhausted", 20), [run("serving", 19)])
    assert found is not None
    assert found.payload["text"] == (
        "gpu8: Exhausted after NaN on auto. Build sglang 202020202020. It served last on 2026-11-19 02:00 UTC with "
        "build sglang 191919191919 (run19). First cause: Every logit is NaN. To do: Take another KV dtype. "
        "Evidence: bringup show run20."
    )


def test_a_failed_install_is_the_cause() -> None:
    why = Diagnosis(kind="version_mismatch", phase=Phase.ARGS, means="it stopped over torch")
    found = news(run("stopped", 20, attempts=(), source=Source(ref="main", folder="k", diagnosis=why)), [])
    assert found is not None
    assert "First cause: it stopped over torch." in found.payload["text"]


SLOW = Finding(
    kind="figure", what="chat at 16: output_tokens_per_s", direction="worse", was=800.0, now=640.0, unit="tok/s",
    said="chat at 16: output_tokens_per_s 800 -> 640 tok/s (-20%)",
)  # fmt: skip


def slow(day: int, *found: Finding) -> RunRecord:
    return run("serving", day, compared=Comparison(last_good="run18", nights=9, findings=found or (SLOW,)))


def test_a_number_alarms_on_its_first_night_and_not_on_each() -> None:
    first = news(slow(20), [run("serving", 19)])
    assert first is not None
    assert "regressed" == first.event
    assert first.payload["text"].endswith(
        "It served last on 2026-11-19 02:00 UTC with build sglang 191919191919 (run19). Worse than in run18: chat at "
        "16: output_tokens_per_s 800 -> 640 tok/s (-20%). To do: run it once more: bringup run --target gpu8. "
        "Evidence: bringup compare run20."
    )
    second = news(slow(20), [slow(19), run("serving", 18)])
    assert "serving" == (second and second.event)
    other = news(slow(20, SLOW, SLOW.model_copy(update={"what": "chat at 64"})), [slow(19)])
    assert "regressed" == (other and other.event)


def test_what_is_better_is_no_regression() -> None:
    found = news(slow(20, SLOW.model_copy(update={"direction": "better"})), [run("serving", 19)])
    assert "serving" == (found and found.event)


def test_noise_leaves_the_build_before_good_and_the_next_night_untold() -> None:
    noise = Confirmation(verdict="noise", why="it served on the second try")
    told = news(run("exhausted", 19, confirmed=noise), [run("serving", 18)])
    assert ("regressed", "noise") == (told and (told.event, told.payload["verdict"]))
    after = news(run("serving", 20), [run("exhausted", 19, confirmed=noise), run("serving", 18)])
    assert "serving" == (after and after.event)
    again = news(run("exhausted", 20), [run("exhausted", 19, confirmed=noise), run("serving", 18)])
    assert "regressed" == (again and again.event)


BROKE = Finding(
    kind="branch", what="rung bf16", direction="worse", was="passed", now="oom_kv (kv) in ready", said="rung bf16 broke"
)
SOURCE = Source(ref="main", commit="c" * 40, folder="k")
MEANWHILE = f"until then run the last good one: --ref {'c' * 40}"


def broken(verdict: str | None, *found: Finding, **changes: object) -> RunRecord:
    confirmed = verdict and Confirmation.model_validate(
        {"verdict": verdict, "why": "so it is", "moved": ("torch 2.8 -> 2.9",)}
    )
    compared = Comparison(last_good="run18", nights=9, findings=found)
    return run("exhausted", 20, source=SOURCE, compared=compared, confirmed=confirmed or None, **changes)


@pytest.mark.parametrize(
    ("record", "to_do"),
    [
        (broken("code", BROKE), f"find the commit: bringup bisect run20; {MEANWHILE}"),
        (broken("code"), f"Take another KV dtype; {MEANWHILE}"),
        (
            broken("host", BROKE),
            "look at gpu8 itself (driver, clocks, temperature, other users): the code did not do it",
        ),
        (broken("noise", BROKE), ""),
        (broken("unclear"), f"run it once more: bringup run --target gpu8 --ref {'c' * 40} --force --confirm"),
        (broken(None, BROKE), "Take another KV dtype."),
    ],
)  # fmt: skip
def test_what_to_do_follows_from_the_verdict(record: RunRecord, to_do: str) -> None:
    found = news(record, [run("serving", 19, source=SOURCE)])
    assert found is not None
    assert to_do == found.payload["to_do"]
    assert (f"To do: {to_do.rstrip('.')}." in found.payload["text"]) == bool(to_do)
    assert ("Moved: torch 2.8 -> 2.9." in found.payload["text"]) == (record.confirmed is not None)


def test_the_cause_is_that_of_the_rung_that_broke_and_not_of_one_that_always_fails() -> None:
    oom = Diagnosis(kind="oom_kv", phase=Phase.KV_ALLOC, means="No room for the cache.", try_="Take less.")
    failed = Attempt(n=2, id="2", rung="bf16", outcome=AttemptOutcome.FAILED, diagnosis=oom)
    found = news(broken(None, BROKE, attempts=(*run("exhausted", 20).attempts, failed)), [run("serving", 19)])
    assert found is not None
    assert ("oom_kv", "Take less.") == (found.payload["cause"], found.payload["to_do"])


def test_what_recovered_says_how_long_it_was_bad() -> None:
    nights = [run("exhausted", 19), run("stopped", 18), run("serving", 17), run("exhausted", 16)]
    found = news(run("serving", 20), nights)
    assert found is not None
    assert ("recovered", "2026-11-18 02:00 UTC") == (found.event, found.payload["since"])
    assert "It had not served since 2026-11-18 02:00 UTC (run18)." in found.payload["text"]


def test_a_run_that_confirms_another_is_no_night() -> None:
    found = news(run("serving", 20), [run("exhausted", 19, confirms="x", role="B"), run("serving", 18)])
    assert "serving" == (found and found.event)
