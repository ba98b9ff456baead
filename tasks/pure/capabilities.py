"""What a host and its build can do, as the probe found it. Nothing here is guessed: what is not known is None."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from settings.source import nearest
from tasks.pure.record import Build, HostSummary

__all__ = ["Capabilities", "Flag", "Gpu", "HostFacts", "ModelFacts", "Parser", "release"]

_RELEASE = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Flag:
    """One argument of the build's own parser."""

    names: tuple[str, ...]
    dest: str
    choices: tuple[str, ...] = ()  # empty = any value
    default: Any = None
    nargs: int | str | None = None
    takes_value: bool = True


@dataclass(frozen=True, slots=True)
class Parser:
    """The build's argument parser. Exact names only: argparse takes prefixes, and so a removed flag for another one."""

    flags: Mapping[str, Flag]  # by each of its names, dashes included

    @classmethod
    def of(cls, flags: Iterable[Flag]) -> "Parser":
        return cls({name: flag for flag in flags for name in flag.names})

    def find(self, name: str) -> Flag | None:
        return self.flags.get(name)

    def all(self) -> tuple[Flag, ...]:
        """Each flag once."""
        return tuple(dict.fromkeys(self.flags.values()))

    def nearest(self, name: str) -> str | None:
        return nearest(name, self.flags)


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str
    sm: int | None = None  # compute capability times ten: 120 is 12.0
    memory_mib: int | None = None
    used_mib: int | None = None
    driver: str | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What config.json and the weight index say."""

    architecture: str | None = None
    index_topk: int | None = None
    quantization: str | None = None
    scale_format: str | None = None
    size_bytes: int | None = None
    shards: int | None = None  # named in the index
    missing_shards: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostFacts:
    hostname: str | None = None
    os: str | None = None
    kernel: str | None = None
    python: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)  # IOMMU, NUMA, limits, ...: for people, decides nothing


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Everything a plan is made from. `parser` None: the build could not be asked, and `problems` says why."""

    build: Build
    parser: Parser | None = None
    answered: Literal["argparse", "help", "file"] | None = None  # who described the parser
    environment: frozenset[str] | None = None  # variables that the build reads; None = not known
    gpus: tuple[Gpu, ...] = ()
    model: ModelFacts = ModelFacts()
    host: HostFacts = HostFacts()
    versions: Mapping[str, str | None] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def sm(self) -> int | None:
        """The lowest compute capability among the GPUs: a kernel has to run on all of them."""
        return min((gpu.sm for gpu in self.gpus if gpu.sm is not None), default=None)

    def summary(self, name: str) -> HostSummary:
        """The part that stands in the run's record."""
        return HostSummary(
            name=name, hostname=self.host.hostname, os=self.host.os, kernel=self.host.kernel, python=self.host.python,
            gpus=tuple(
                {"index": g.index, "name": g.name, "sm": g.sm, "memory_mib": g.memory_mib, "used_mib": g.used_mib}
                for g in self.gpus
            ),
            driver=next((g.driver for g in self.gpus if g.driver), None),
            versions=dict(self.versions),
            model={
                key: value
                for key in ("architecture", "index_topk", "quantization", "scale_format", "size_bytes", "shards")
                if (value := getattr(self.model, key)) is not None
            },
            problems=self.problems,
        )


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparison: `0.5.10.post1` and a nightly `0.5.10.dev3+g1` are (0, 5, 10)."""
    match = _RELEASE.match(version.lstrip("v"))
    return tuple(int(part) for part in match.group().split(".")[:3]) if match else ()
