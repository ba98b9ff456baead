"""The order of a load test as tables and properties: what is run next, when it is enough, and where the SLO ends."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.load_test import LoadTest
from settings.suite import BenchProfile
from tasks.pure.record import BenchPoint
from tasks.pure.sweep import capacity, figures, next_concurrency, next_run, peaks_unmeasured, spread

A = BenchProfile(name="a", why="x", input_tokens=10, output_tokens=10, prompts=20, concurrency=2)
B = A.model_copy(update={"name": "b"})


def load_test(**values: Any) -> LoadTest:
    return LoadTest.model_validate({"why": "x", "profiles": ["a"], **values})


def point(concurrency: int, rate: float = 100.0, valid: bool = True, profile: str = "a", **more: float) -> BenchPoint:
    made = BenchPoint(
        profile=profile, valid=valid, why="" if valid else "no tokens", asked=10, concurrency=concurrency,
        output_tokens_per_s=rate, completed=10, success_rate=1.0,
    )  # fmt: skip
    return made.model_copy(update=more)


def played(
    test: LoadTest, profiles: tuple[BenchProfile, ...], run: Callable[[BenchProfile, int], BenchPoint]
) -> list[BenchPoint]:
    """A whole load test; fails when it does not end."""
    done: list[BenchPoint] = []
    while (then := next_run(test, profiles, done, 0.0)).profile is not None:
        done.append(run(then.profile, then.repeat))
        assert len(done) < 500
    return done


def test_without_concurrencies_the_profile_is_run_once_as_it_stands() -> None:
    assert [2] == [p.concurrency for p in played(load_test(), (A,), lambda p, _: point(p.concurrency))]


def test_a_sweep_goes_from_high_to_low_over_all_profiles_whatever_the_order_in_the_file() -> None:
    done = played(
        load_test(profiles=["a", "b"], concurrency=[1, 8, 4]), (A, B), lambda p, _: point(p.concurrency, profile=p.name)
    )
    assert [("a", 8), ("b", 8), ("a", 4), ("b", 4), ("a", 1), ("b", 1)] == [(p.profile, p.concurrency) for p in done]


@pytest.mark.parametrize(
    ("rates", "runs"),
    [
        ([100, 100, 100, 100, 100], 3),  # three that agree are enough
        ([100, 120, 140, 100, 100], 5),  # these do not agree before the fifth
        ([100, 100.5, 101, 0, 0], 3),
    ],
)
def test_a_point_is_repeated_until_its_spread_is_small_or_its_repeats_are_spent(rates: list[float], runs: int) -> None:
    done = played(load_test(repeats=5), (A,), lambda p, n: point(p.concurrency, rates[n - 1]))
    assert runs == len(done)


def test_an_invalid_run_is_repeated_twice_and_never_averaged_in() -> None:
    outcomes = iter([point(2, 9e9, valid=False), point(2, 100), point(2, 110), point(2, 120), point(2, 9e9)])
    test = load_test(repeats=3)
    done = played(test, (A,), lambda *_: next(outcomes))
    (figure,) = figures(test, (A,), done, "")
    assert (3, 1) == (figure.runs, figure.invalid)
    assert (110.0, 10.0) == (figure.median["output_tokens_per_s"], figure.mad["output_tokens_per_s"])
    assert "ttft_p99_ms" not in figure.median


def test_three_invalid_runs_end_a_point_and_the_lower_ones_are_still_measured() -> None:
    test = load_test(concurrency=[8, 4], repeats=2)
    done = played(test, (A,), lambda p, _: point(p.concurrency, valid=p.concurrency < 8))
    assert [8, 8, 8, 4, 4] == [p.concurrency for p in done]
    found = figures(test, (A,), done, "")
    (unmeasured,) = peaks_unmeasured(found)
    assert (8, 3, "no valid run: no tokens") == (unmeasured.concurrency, unmeasured.invalid, unmeasured.why)


def test_a_server_measured_at_its_peak_is_measured_though_a_lower_point_is_not() -> None:
    test = load_test(concurrency=[8, 4])
    done = [point(8), *[point(4, valid=False)] * 3]
    assert () == peaks_unmeasured(figures(test, (A,), done, ""))


def test_a_spent_budget_begins_nothing_more_and_says_what_was_left_out() -> None:
    test = load_test(concurrency=[8, 4], budget_s=60)
    assert next_run(test, (A,), [], 999).profile is not None, "the first run is made whatever the budget"
    then = next_run(test, (A,), [point(8)], 60)
    assert (None, "the budget of 60 s is spent") == (then.profile, then.why)
    left_out = figures(test, (A,), [point(8)], then.why)[1]
    assert (4, 0, None, "not run: the budget of 60 s is spent") == (
        left_out.concurrency, left_out.runs, left_out.slo_met, left_out.why,
    )  # fmt: skip


# --- the SLO -----------------------------------------------------------------------------------------------------

SLO = {"ttft_p99_ms": 100, "tpot_p99_ms": 20, "min_success_rate": 0.9}


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([{"ttft_p99_ms": 100, "tpot_p99_ms": 20}], ""),
        ([{"ttft_p99_ms": 100.1, "tpot_p99_ms": 2}], "ttft_p99_ms is 100.1, it must be 100 at most"),
        ([{"ttft_p99_ms": 5, "tpot_p99_ms": 21}], "tpot_p99_ms is 21.0, it must be 20 at most"),
        ([{"ttft_p99_ms": 5}], "tpot_p99_ms was not measured, it must be 20 at most"),
        # the mean is fine, and does not count
        ([{"ttft_p99_ms": 900, "ttft_mean_ms": 5, "tpot_p99_ms": 2}], "ttft_p99_ms is 900.0, it must be 100 at most"),
        # one slow run of three does not decide
        ([{"ttft_p99_ms": t, "tpot_p99_ms": 2} for t in (50, 900, 60)], ""),
        ([{"ttft_p99_ms": 5, "tpot_p99_ms": 2, "success_rate": 0.5}], "50.0% of the requests completed"),
    ],
)
def test_a_point_is_judged_on_its_p99(runs: list[dict[str, float]], why: str) -> None:
    test = load_test(slo=SLO, repeats=3)
    points = [point(2).model_copy(update=values) for values in runs]
    (figure,) = figures(test, (A,), points, "")
    assert (not why, True) == (figure.slo_met, figure.why.startswith(why)), figure.why
    assert bool(why) == bool(figure.why)


def test_a_point_that_could_not_be_measured_does_not_meet_the_slo() -> None:
    (figure,) = figures(load_test(slo=SLO), (A,), [point(2, valid=False)] * 3, "")
    assert (False, "no valid run: no tokens") == (figure.slo_met, figure.why)


@pytest.mark.parametrize(
    ("met", "then", "highest"),
    [
        ({}, None, None),
        ({8: True}, None, 8),  # nothing above was asked for
        ({1: False}, None, None),
        ({8: False}, 4, None),
        ({8: False, 4: True}, 6, 4),
        ({8: False, 4: True, 6: True}, 7, 6),
        ({8: False, 7: False, 6: True}, None, 6),
        ({2: False, 1: True}, None, 1),
        ({16: True, 8: False, 4: True}, 6, 4),  # luck above a miss is not built upon
    ],
)
def test_the_search_halves_what_lies_between_met_and_missed(
    met: dict[int, bool], then: int | None, highest: int | None
) -> None:
    assert (then, highest) == (next_concurrency(met), capacity(met))


@given(st.integers(1, 300), st.integers(0, 300), st.sets(st.integers(1, 300)))
def test_the_search_finds_the_exact_limit_in_a_few_steps_and_asks_nothing_twice(
    top: int, limit: int, also: set[int]
) -> None:
    met = {c: c <= limit for c in {top, *(c for c in also if c <= top)}}
    for _ in range(10):  # 2^9 > 300
        then = next_concurrency(met)
        if then is None:
            break
        assert then not in met
        assert 1 <= then < top
        met[then] = then <= limit
    assert next_concurrency(met) is None
    assert capacity(met) == (min(limit, max(c for c in met if c <= limit)) if any(c <= limit for c in met) else None)
    assert (capacity(met) or 0) == min(limit, top) or top <= limit


@given(st.dictionaries(st.integers(1, 64), st.booleans(), min_size=1), st.floats(0, 0.5), st.data())
def test_the_search_ends_whatever_the_server_answers(
    met: dict[int, bool], precision: float, data: st.DataObject
) -> None:
    for _ in range(len(met) + 80):
        then = next_concurrency(met, precision)
        if then is None:
            return
        assert then not in met
        met[then] = data.draw(st.booleans())
    raise AssertionError("the search does not end")


def test_the_search_runs_on_the_same_launch_after_the_sweep_and_its_points_are_repeated_too() -> None:
    test = load_test(concurrency=[16, 1], repeats=2, slo={"ttft_p99_ms": 100}, search=True)
    done = played(test, (A,), lambda p, _: point(p.concurrency, ttft_p99_ms=9.9 * p.concurrency))
    assert [16, 16, 1, 1, 8, 8, 12, 12, 10, 10, 11, 11] == [p.concurrency for p in done]
    found = figures(test, (A,), done, "")
    assert 10 == capacity({f.concurrency: bool(f.slo_met) for f in found})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_spread_is_never_negative_and_zero_when_all_agree(values: list[float]) -> None:
    assert spread(values) >= 0
    assert 0 == spread([values[0]] * len(values))
