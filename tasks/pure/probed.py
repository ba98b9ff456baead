"""What the probe's answers mean: from the JSON and the tables that a host printed to what plans are made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from settings.engine import Engine
from tasks.pure.capabilities import Capabilities, Gpu, HostFacts, ModelFacts, Parser
from tasks.pure.helptext import parser_from_actions
from tasks.pure.preflight import GpuProcess, HostNow
from tasks.pure.record import Build

__all__ = ["capabilities_from", "host_now_from", "parse_apps", "parse_gpus", "probe_json", "probe_rows"]

CLOCK_S = 30.0  # a probe itself takes some seconds

_HOST = ("hostname", "os", "kernel", "python")


def capabilities_from(report: Mapping[str, Any], engine: Engine, *, help_parser: Parser | None = None) -> Capabilities:
    """The capabilities that the report of tasks/remote/probe.py shows. Parts that are not in it are not known.

    `help_parser`: the parser read from `--help`, for a build that could not be asked otherwise.
    """
    host, build, packages = (_part(report, name) for name in ("host", "build", "packages"))
    versions: dict[str, str | None] = dict(_part(packages, "versions"))
    version = versions.get(engine.package) or build.get("version")
    actions = build.get("parser")
    parser = parser_from_actions(actions) if actions else help_parser
    variables = build.get("environment")
    return Capabilities(
        build=Build(
            engine=engine.name, version=version, commit=report.get("commit") or None,
            freeze_sha256=packages.get("freeze_sha256"),
        ),
        parser=parser,
        answered="argparse" if actions else "help" if help_parser else None,
        environment=frozenset(variables) if variables else None,
        gpus=tuple(parse_gpus(_part(report, "nvidia").get("gpus", ""))),
        model=_model(_part(report, "model")),
        host=HostFacts(**{name: host.get(name) for name in _HOST}, more=_more(report, host)),
        versions=versions,
        problems=(*report.get("problems", ()), *(f"build: {p}" for p in build.get("problems", ())), *_warnings(report)),
    )


def host_now_from(report: Mapping[str, Any], *, port_free: bool | None) -> HostNow:
    """The quick facts before a launch, from the same report."""
    nvidia, limits, model = (_part(report, name) for name in ("nvidia", "limits", "model"))
    ours, gpus = set(nvidia.get("ours", ())), tuple(parse_gpus(nvidia.get("gpus", "")))
    problems = report.get("problems", ())
    return HostNow(
        port_free=port_free,
        processes=tuple(parse_apps(nvidia.get("apps", ""), ours, gpus, _part(nvidia, "users"))),
        gpu_used_mib={g.index: g.used_mib for g in gpus if g.used_mib is not None},
        disk_free_mib={k: v for k, v in _part(limits, "disk_free_mib").items() if v is not None},
        shm_free_mib=limits.get("shm_free_mib"),
        open_files=limits.get("open_files_hard"),
        missing_shards=tuple(model.get("missing_shards", ())),
        model_found=False if any(str(p).startswith("model: no folder ") for p in problems) else bool(model) or None,
    )


def probe_json(found: Capabilities, target: str) -> dict[str, Any]:
    """What `bringup probe --json` prints: everything found, the parser by flag."""
    return {
        "target": target,
        "build": {**found.build.model_dump(), "answered": found.answered, "versions": dict(found.versions)},
        "host": {**{name: getattr(found.host, name) for name in _HOST}, **found.host.more},
        "gpus": [asdict(gpu) for gpu in found.gpus],
        "model": asdict(found.model),
        "parser": None if found.parser is None else [asdict(flag) for flag in found.parser.all()],
        "environment": None if found.environment is None else sorted(found.environment),
        "problems": list(found.problems),
    }


def probe_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The same for a person: headings, and under each its names and values."""
    build = facts["build"]
    flags = len(facts["parser"]) if facts["parser"] else 0
    asked = f"{flags} flags, told by {build['answered']}" if flags else "not known"
    yield "build", [
        *((name, str(build[name])) for name in ("engine", "version", "commit", "freeze_sha256") if build[name]),
        ("parser", asked), *((name, str(version)) for name, version in build["versions"].items()),
    ]
    yield "host", [(name, _brief(value)) for name, value in facts["host"].items() if value is not None]
    yield "gpus", [
        (str(g["index"]), f"{g['name']}, SM{g['sm']}, {g['used_mib']} of {g['memory_mib']} MiB, driver {g['driver']}")
        for g in facts["gpus"]
    ]
    yield "model", [(k, _brief(v)) for k, v in facts["model"].items() if k != "config" and v not in (None, ())]
    yield "problems", [("", problem) for problem in facts["problems"]]


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner not in (None, [], {}))
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value)) or "none"
    text = str(value)
    return "\n".join(["", *text.splitlines()]) if "\n" in text else text


def parse_gpus(text: str) -> Iterator[Gpu]:
    """From `nvidia-smi --query-gpu=index,name,compute_cap,memory.total,memory.used,driver_version,uuid` as bare csv."""
    for row in _rows(text, 7):
        index = _int(row[0])
        if index is not None:
            yield Gpu(index, row[1], _sm(row[2]), _int(row[3]), _int(row[4]), row[5] or None, row[6] or None)


def parse_apps(
    text: str, ours: set[int], gpus: Sequence[Gpu] = (), users: Mapping[str, str | None] = MappingProxyType({})
) -> Iterator[GpuProcess]:
    """From `nvidia-smi --query-compute-apps=pid,process_name,used_memory,gpu_uuid` as bare csv. `users`: by pid."""
    index = {gpu.uuid: gpu.index for gpu in gpus}
    for row in _rows(text, 4):
        pid = _int(row[0])
        if pid is not None:
            yield GpuProcess(pid, row[1], _int(row[2]), index.get(row[3]), pid in ours, users.get(row[0]))


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        row = [cell.strip() for cell in line.split(",")]
        if len(row) >= columns:
            yield row


def _int(text: str) -> int | None:
    """Where nvidia-smi cannot tell, it prints [N/A] or [Not Supported]."""
    digits = text.split()[0] if text else ""
    return int(digits) if digits.isdecimal() else None


def _sm(text: str) -> int | None:
    major, _, minor = text.partition(".")
    return int(major) * 10 + int(minor) if major.isdecimal() and minor.isdecimal() else None


def _part(report: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = report.get(name)
    return part if isinstance(part, dict) else {}


def _model(model: Mapping[str, Any]) -> ModelFacts:
    return ModelFacts(
        architecture=model.get("architecture"), index_topk=model.get("index_topk"),
        quantization=model.get("quantization"), scale_format=model.get("scale_format"),
        size_bytes=model.get("size_bytes"), shards=model.get("shards"),
        missing_shards=tuple(model.get("missing_shards", ())), config=_part(model, "config"),
    )


def _more(report: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Any]:
    more = {key: value for key, value in host.items() if key not in _HOST}
    names = ("limits", "cuda", "topology", "p2p", "shared_memory", "clock_ahead_s")
    more |= {name: report[name] for name in names if report.get(name) is not None}
    nvidia = _part(report, "nvidia")
    apps = parse_apps(nvidia.get("apps", ""), set(nvidia.get("ours", ())))
    return more | {"gpu_processes": [f"{p.pid} {p.name} {p.used_mib} MiB{' (ours)' if p.ours else ''}" for p in apps]}


def _warnings(report: Mapping[str, Any]) -> Iterator[str]:
    cuda, model = _part(report, "cuda"), _part(report, "model")
    ahead_s = report.get("clock_ahead_s")
    if ahead_s is not None and abs(ahead_s) > CLOCK_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        yield f"host: its clock is {abs(ahead_s):.0f} s {way} ours: times in its logs differ by as much"
    if cuda and not cuda.get("nvcc"):
        elsewhere = cuda.get("nvcc_elsewhere") or []
        hint = f"; {elsewhere[-1]}/bin has one: put it into the target's env" if elsewhere else ""
        yield f"cuda: no nvcc on the non-interactive PATH, kernels that are compiled at run time will fail{hint}"
    if missing := model.get("missing_shards"):
        yield f"model: {len(missing)} weight files named in the index are missing, the first is {missing[0]}"
