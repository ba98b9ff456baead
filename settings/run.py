"""How a run watches and waits, whatever the target; every field can come from a `BRINGUP_RUN__…` variable or `.env`."""

import re

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from settings.band import Bands
from settings.source import BadInput, bad_input, environment_file, sizes_refused, truths_refused
from settings.words import Phase

__all__ = ["PREFIX", "RunSettings", "load_run_settings"]

PREFIX = "BRINGUP_RUN__"


class RunSettings(BaseSettings):
    """Times of our own. Those of the engine (quiet limits) stand in its file."""

    model_config = SettingsConfigDict(
        frozen=True, env_prefix=PREFIX, extra="ignore", allow_inf_nan=False
    )  # fmt: skip

    _no_truth = truths_refused()
    _no_size = sizes_refused()

    api_port: int | None = Field(None, ge=1, le=65_535, description="server's port where ladder and target set none")
    poll_s: float = Field(1.0, gt=0, le=30, description="seconds between two looks at a starting server")
    doom_grace_s: float = Field(3.0, ge=0, description="seconds that a doomed server may still write its reason")
    quiet_s: dict[Phase, float] = Field({}, description="seconds of silence believed in, instead of the engine file's")
    call_s: float = Field(30.0, gt=0, description="seconds for one call to the host or to the served API")
    probe_s: float = Field(120.0, gt=0, description="seconds for the whole probe of host and build")
    warmup_s: float = Field(1800.0, gt=0, description="seconds for the first requests, which may compile kernels")
    decode_s: float = Field(900.0, gt=0, description="seconds for one decode suite")
    bench_s: float = Field(3600.0, gt=0, description="seconds for one run of the load test")
    redact: tuple[str, ...] = Field((), description="regular expressions: what they match is hidden in all outputs")
    redact_hosts: bool = Field(False, description="hide the names of both hosts, too")
    publish: str | None = Field(None, min_length=1, description="folder or URL a run is copied to when it has ended")
    publish_s: float = Field(120.0, gt=0, description="seconds for that copy; what people are told waits behind it")
    stop_s: float = Field(150.0, gt=0, description="seconds for a server to be gone with its memory and port")
    bands: Bands = Field(Bands(), description="when a time or a figure differs from earlier nights, as JSON")

    @field_validator("redact")
    @classmethod
    def _patterns_compile(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                if re.compile(pattern).match(""):
                    raise ValueError(f"'{pattern}' matches the empty text")
            except re.error as e:
                raise ValueError(f"'{pattern}' is no regular expression: {e}") from e
        return value


def load_run_settings() -> RunSettings:
    """The settings in force. Raises: BadInput."""
    try:
        return RunSettings(_env_file=environment_file(PREFIX, RunSettings.model_fields))
    except ValidationError as e:
        raise bad_input(RunSettings, e, "BRINGUP_RUN__… (environment or .env)") from e
    except SettingsError as e:
        raise BadInput("BRINGUP_RUN__… (environment or .env)", "", f"{e}; lists and tables are written as JSON") from e
