"""The load test of a ladder: which profiles at which concurrencies, how often, how long, and what is good enough."""

from pydantic import Field, model_validator

from settings.source import Declared, find, load
from settings.suite import BenchProfile

__all__ = ["LoadTest", "Slo", "load_profiles"]


class Slo(Declared):
    """What a point must keep to; absent = not looked at. Latencies are judged on their p99, never on a mean."""

    ttft_p99_ms: float | None = Field(None, gt=0, description="time to the first token")
    tpot_p99_ms: float | None = Field(None, gt=0, description="time per further token of a request")
    min_success_rate: float = Field(1.0, gt=0, le=1, description="share of the requests asked for that must complete")


class LoadTest(Declared):
    """Several points on one launch, from the highest concurrency down: what breaks under load breaks at the first."""

    why: str = Field(min_length=1, description="what this load test is for")
    profiles: tuple[str, ...] = Field(min_length=1, description="names in settings/suites/bench/, or paths")
    concurrency: tuple[int, ...] = Field(
        (), description="requests at once, for each profile; absent = the profile's own"
    )
    repeats: int = Field(1, ge=1, le=20, description="valid runs of a point, at most")
    spread: float = Field(
        0.02, ge=0, le=1, description="MAD by median of the output throughput at which three valid runs are enough"
    )
    budget_s: float = Field(3600, gt=0, description="seconds after which no further run is begun")
    sample_every_s: float | None = Field(
        10, gt=0, description="seconds between two natural questions asked beside the load; absent never"
    )
    slo: Slo | None = Field(None, description="targets that each point is judged by")
    search: bool = Field(False, description="find the highest concurrency that meets the SLO, by bisection")
    precision: float = Field(0.05, ge=0, lt=1, description="share of a concurrency that the search may be off")

    @model_validator(mode="after")
    def _is_possible(self) -> "LoadTest":
        if "concurrency" in self.model_fields_set and not self.concurrency:
            raise ValueError("an empty concurrency asks for no point; leave the key out for the profile's own")
        if any(c < 1 for c in self.concurrency):
            raise ValueError("concurrency counts requests at once: 1 or more")
        if len(set(self.concurrency)) < len(self.concurrency):
            raise ValueError("a concurrency stands there twice; `repeats` says how often a point is run")
        if self.search and self.slo is None:
            raise ValueError("`search` looks for the highest concurrency that meets the SLO: it needs [slo]")
        return self


def load_profiles(test: LoadTest) -> tuple[BenchProfile, ...]:
    """The profiles that it names. Raises: BadInput."""
    return tuple(load(BenchProfile, find("suites/bench", name)) for name in test.profiles)
