"""Questions beside a load, against a served API behind httpx's own seam."""

import json
import threading
from typing import Any

import httpx

from settings.source import SETTINGS_DIR, load
from settings.suite import BenchProfile, DecodeSuite
from settings.words import Verdict
from tasks.sampler import Sampler, UnderLoad
from tests.tasks.conftest import until
from tests.tasks.pure.reply_forms import native

SUITE = load(DecodeSuite, SETTINGS_DIR / "suites" / "recheck.toml")
SMOKE = load(BenchProfile, SETTINGS_DIR / "suites" / "bench" / "smoke.toml")

PARIS = native(" Paris.", [12366, 13], [-0.1, -0.2])
NONSENSE = native(" the the the the the the the the", [5] * 8, [-0.1] * 8)
NAN = native("!!!!", [0] * 4, [None] * 4)


class Api:
    """Answers /generate with the given bodies in turn, the last one for ever."""

    def __init__(self, *bodies: Any) -> None:
        self.bodies, self.asked, self.lock = list(bodies), list[dict[str, Any]](), threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={})
        with self.lock:
            self.asked.append(json.loads(request.content))
            body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        return body if isinstance(body, httpx.Response) else httpx.Response(200, json=body)

    def client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self), base_url="http://x")


def _sampled(api: Api, want: int) -> UnderLoad:
    """What `want` samples beside a load showed."""
    seen = UnderLoad()
    with api.client() as client, Sampler(client, SUITE, 0.01, seen) as sampler:
        sampler.beside(SMOKE)
        until(lambda: len(seen.samples) >= want, f"{want} samples")
    return seen


def test_a_sound_server_is_asked_again_and_again_and_never_called_bad() -> None:
    seen = _sampled(Api(PARIS), 5)
    assert {Verdict.OK} == {s.verdict for s in seen.samples}
    assert seen.bad is None
    assert ("smoke", 8) == (seen.samples[0].profile, seen.samples[0].concurrency)


def test_nan_counts_at_once_and_its_moment_is_known() -> None:
    api = Api(PARIS, PARIS, NAN)
    seen = _sampled(api, 3)
    assert seen.bad is not None
    assert "nan" == seen.bad.kind
    assert f"{seen.samples[-1].into_s:.1f} s into the load test (smoke, 8 at once)" in seen.bad.why
    assert [Verdict.OK, Verdict.OK, Verdict.NAN] == [s.verdict for s in seen.samples]
    assert 3 == len(api.asked), "nothing is asked after that"


def test_nonsense_counts_when_it_comes_twice_in_a_row() -> None:
    seen = _sampled(Api(PARIS, NONSENSE, NONSENSE), 3)
    assert seen.bad is not None
    assert "garbage" == seen.bad.kind
    once = _sampled(Api(NONSENSE, PARIS), 4)
    assert (None, Verdict.GARBAGE) == (once.bad, once.samples[0].verdict)


def test_an_answer_that_is_late_under_load_is_no_bad_answer() -> None:
    late: list[int] = []

    def never(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={})
        late.append(1)
        raise httpx.ReadTimeout("no answer", request=request)

    with httpx.Client(transport=httpx.MockTransport(never), base_url="http://x") as client:
        with Sampler(client, SUITE, 0.01, seen := UnderLoad()) as sampler:
            sampler.beside(SMOKE)
            until(lambda: len(late) >= 3, "three late answers")
    assert (None, []) == (seen.bad, seen.samples)


def test_nothing_is_asked_between_two_runs_nor_without_an_interval() -> None:
    api = Api(PARIS)
    with api.client() as client:
        with Sampler(client, SUITE, 0.01, seen := UnderLoad()) as sampler:
            sampler.beside(SMOKE)
            until(lambda: bool(seen.samples), "a sample")
            sampler.beside(None)
        with Sampler(client, SUITE, None, nothing := UnderLoad()) as never:
            never.beside(SMOKE)
    assert [] == nothing.samples
    assert {16} == {body["sampling_params"]["max_new_tokens"] for body in api.asked}, "one short question each time"
