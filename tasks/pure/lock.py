"""From a record to the lock of its winner, and from a lock to what differs on the host where it is run again."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

from settings.lock import Lock, LockedBuild, LockedHost, LockedServer, LockedSuite
from settings.source import BadInput
from settings.words import Stage
from tasks.pure.plan import LaunchPlan
from tasks.pure.record import Build, HostSummary, RunRecord, SuiteRef
from tasks.pure.redact import MASK
from tasks.pure.report import headline

__all__ = ["differences", "lock_of", "lock_toml", "replay"]


def lock_of(record: RunRecord) -> Lock:
    """The lock of the run's winner. Raises: BadInput when nothing served."""
    won = next((a for a in record.attempts if a.n == record.winner), None)
    if won is None:
        raise BadInput(record.run_id, "winner", "nothing served in this run, so there is nothing to take away")
    if any(MASK in word for word in won.argv):
        raise BadInput(record.run_id, "argv", "the command holds a hidden value; give it by the target's environment")
    return Lock(
        run_id=record.run_id,
        why=headline(record),
        gates=tuple(s.stage for s in won.stages if s.stage in _GATES),
        ladder=LockedSuite(name=record.ladder.name, sha256=record.ladder.sha256),
        build=LockedBuild(**record.build.model_dump()),
        host=_host(record.host),
        server=LockedServer(
            rung=won.rung, remedies=won.remedies, argv=won.argv, port=_port(record.run_id, won.argv),
            env={k: v for k, v in won.env.items() if v != MASK},
            hidden=tuple(k for k, v in won.env.items() if v == MASK),
            asked=won.asked, effective=_texts(won.effective),
        ),
        suites={role: LockedSuite(name=s.name, sha256=s.sha256) for role, s in record.suites.items()},
    )  # fmt: skip


def lock_toml(lock: Lock) -> str:
    """The file. What is not known is left out, since TOML has no null."""
    return tomli_w.dumps(lock.model_dump(mode="json", exclude_none=True))


def replay(lock: Lock) -> LaunchPlan:
    """The launch exactly as it was."""
    server = lock.server
    return LaunchPlan(server.argv, dict(server.env), server.port, dict(server.asked), expects={})


def differences(
    lock: Lock, build: Build, host: HostSummary, given: Mapping[str, str], suites: Mapping[str, SuiteRef]
) -> tuple[str, ...]:
    """What is not as it was when the lock was written, a sentence each. `given`: the variables of the target.

    Of a variable only the name is told: its value may be nobody's business.
    """
    here = _host(host)
    pairs = [
        *((f"build {key}", getattr(lock.build, key), getattr(build, key)) for key in LockedBuild.model_fields),
        *((key, getattr(lock.host, key), getattr(here, key)) for key in ("hostname", "driver", "python")),
        ("GPUs", ", ".join(lock.host.gpus), ", ".join(here.gpus)),
        *((f"model {key}", was, here.model.get(key)) for key, was in lock.host.model.items()),
        *((f"{role} suite", suite.sha256[:12], suites[role].sha256[:12]) for role, suite in lock.suites.items()),
    ]
    changed = [f"{what} was {was or 'unknown'}, is {now or 'unknown'}" for what, was, now in pairs if was != now]
    return (*changed, *_variables(lock.server, given))


def _variables(server: LockedServer, given: Mapping[str, str]) -> Iterator[str]:
    for name in server.hidden:
        if name not in given:
            yield f"the target gives no {name}"
    for name, value in given.items():
        if name in server.env and server.env[name] != value:
            yield f"the target gives another {name}; the lock's is used"
        elif name not in server.env and name not in server.hidden:
            yield f"the target gives {name}, which was not there"


_GATES = frozenset((Stage.READY, Stage.WARMUP, Stage.DECODE, Stage.BENCH, Stage.RECHECK))


def _host(host: HostSummary) -> LockedHost:
    return LockedHost(
        name=host.name, hostname=host.hostname, driver=host.driver, python=host.python,
        gpus=tuple(f"{g.get('name')} (SM{g.get('sm')})" for g in host.gpus), model=_texts(host.model),
    )  # fmt: skip


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if value is not None:
            yield key, str(value)


def _port(run_id: str, argv: tuple[str, ...]) -> int:
    at = argv.index("--port") + 1 if "--port" in argv else len(argv)
    if at == len(argv) or not argv[at].isdecimal():
        raise BadInput(run_id, "argv", "the winner's command names no port by `--port NUMBER`")
    return int(argv[at])
