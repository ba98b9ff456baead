"""`run.lock.toml`: all that defines the winner of a run. It is written by a run, and is itself something to run."""

import json
from typing import Literal

from pydantic import Field, field_validator

from settings.ladder import ArgValue
from settings.source import Declared, load, on_this_machine
from settings.words import Stage

__all__ = ["Lock", "LockedBuild", "LockedHost", "LockedServer", "LockedSuite", "load_lock", "locked_ladder"]


class LockedBuild(Declared):
    engine: str = Field(description="name in settings/engines/")
    version: str | None = None
    commit: str | None = None
    freeze_sha256: str | None = Field(None, description="of all installed packages with their versions")


class LockedHost(Declared):
    name: str
    hostname: str | None = None
    driver: str | None = None
    python: str | None = None
    gpus: tuple[str, ...] = Field((), description="one name a GPU, with its compute capability")
    model: dict[str, str] = Field({}, description="what config.json and the weight index say")


class LockedServer(Declared):
    rung: str
    remedies: tuple[str, ...] = ()
    argv: tuple[str, ...] = Field(min_length=1, description="the command, word by word")
    port: int = Field(ge=1, le=65_535)
    env: dict[str, str] = Field({}, description="environment of the server beside the target's")
    hidden: tuple[str, ...] = Field((), description="variables whose values the target has to give")
    asked: dict[str, ArgValue] = {}
    effective: dict[str, str] = Field({}, description="what the server said that it runs with")

    @field_validator("argv")
    @classmethod
    def _is_whole(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if "<secret>" in word:
                raise ValueError("the command holds a hidden value; give it through the target's environment instead")
        return value


class LockedSuite(Declared):
    name: str
    sha256: str


class Lock(Declared):
    """One configuration that has served, and what it served on."""

    lock: Literal[1] = Field(1, description="version of this file's form")
    run_id: str
    why: str = Field(description="the headline of the run that found it")
    gates: tuple[Stage, ...]
    ladder: LockedSuite
    build: LockedBuild
    host: LockedHost
    server: LockedServer
    suites: dict[str, LockedSuite] = Field({}, description="by role: decode, recheck, bench")


def load_lock(name: str) -> Lock:
    """The lock at that path. Raises: BadInput."""
    return load(Lock, on_this_machine(name))


def locked_ladder(lock: Lock) -> str:
    """A ladder of one rung, as TOML: the locked configuration serves, or the run stops and says so."""
    said = json.dumps  # a JSON string of printable characters is a TOML string
    lines = [
        f"engine = {said(lock.build.engine)}",
        f"start = {said(lock.server.rung)}",
        f"gates = {said(lock.gates)}",
        *(f"{role}_suite = {said(suite.name)}" for role, suite in lock.suites.items()),
        f"[rung.{said(lock.server.rung)}]",
        f"why = {said(f'locked by run {lock.run_id}')}",
        "[default]",
        'on = [{ stop = "the locked configuration does not serve here" }]',
    ]
    return "\n".join(lines) + "\n"
