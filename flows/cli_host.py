"""`bringup status` and `bringup stop`: who has a host, and giving it back. Both work without Prefect."""

import json
from typing import Annotated

import typer
from rich.console import Console

from settings.run import load_run_settings
from settings.source import BadInput
from settings.target import Target, load_target
from settings.words import ExitCode
from tasks.connect import connect, resolved
from tasks.deadline import Deadline, pause
from tasks.host import Host, HostError
from tasks.pure.preflight import GpuProcess
from tasks.pure.visible import visible
from tasks.supervisor import Busy, Holder, Supervisor

__all__ = ["status", "stop", "what_is_left"]

_ENDING_S = 30.0  # how long an interrupted run's host is asked until it says that all is gone

TargetName = Annotated[str, typer.Option("--target", help="name in settings/targets/, or a path")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]


def status(target: TargetName, as_json: AsJson = False) -> None:
    """Say who has the host and what runs there. Example: bringup status --target rehearsal"""
    wanted, settings = load_target(target), load_run_settings()
    with connect(wanted, deadline=Deadline.after(settings.call_s)) as host:
        holder = _supervisor(wanted, host, "").holder(deadline=Deadline.after(settings.call_s))
        strangers = _strangers(_supervisor(wanted, host, ""), Deadline.after(settings.call_s))
    if as_json:
        said = {"target": wanted.name, "held": holder is not None, **(_facts(holder) if holder else {})}
        print(json.dumps({**said, "strangers": [_stranger(process) for process in strangers]}))
        return
    console = Console()
    console.print(_sentence(wanted.name, holder), highlight=False, soft_wrap=True)
    if strangers:
        told = ", ".join(f"{process} ({process.used_mib} MiB)" for process in strangers)
        console.print(visible(f"not ours on its GPUs: {told}"), highlight=False, markup=False, soft_wrap=True)


def stop(
    target: TargetName,
    force: Annotated[bool, typer.Option(help="stop a run that is still alive, not only a kept server")] = False,
    as_json: AsJson = False,
) -> None:
    """End the server that was kept on the host, and give the host back. Example: bringup stop --target rehearsal"""
    wanted, settings = load_target(target), load_run_settings()
    with connect(wanted, deadline=Deadline.after(settings.call_s)) as host:
        holder = _supervisor(wanted, host, "").holder(deadline=Deadline.after(settings.call_s))
        said, free = _sentence(wanted.name, holder), holder is None
        if holder and holder.daemon_alive and not holder.kept and not force:
            said += "; it is still running: end it there, or use --force"
        elif holder:
            taken_by = _give_back(_supervisor(wanted, host, holder.run_id), holder, Deadline.after(settings.stop_s))
            free = taken_by is None
            said += "; stopped, the host is free" if free else f"; {taken_by} has taken it meanwhile"
    if as_json:
        print(json.dumps({"target": wanted.name, "free": free, "said": said}))
    else:
        Console().print(said, highlight=False, soft_wrap=True)
    raise typer.Exit(ExitCode.SERVING if free else ExitCode.HOST_BUSY)


def what_is_left(target: Target, run_id: str, attempt: str | None) -> str:
    """What an interrupted run left on its host, as the host itself says; what is still ending is waited for a while.

    `attempt`: id of the last attempt, whose end is looked at.
    """
    deadline, holder, ended = Deadline.after(_ENDING_S), None, None
    try:
        with connect(target, deadline=deadline) as host:
            supervisor = _supervisor(target, host, run_id)
            while (holder := supervisor.holder(deadline=deadline)) is not None and holder.run_id == run_id:
                if holder.kept or deadline.left_s < 1:
                    break
                pause(0.5, deadline)
            ended = supervisor.status(attempt, deadline=Deadline.after(5)).exit if attempt else None
    except (HostError, BadInput) as e:
        return f"what is left on {target.name} is not known ({e}); {_by_lease(target)}"
    if holder is not None and holder.run_id == run_id and holder.kept:
        return f"{_sentence(target.name, holder)}; `bringup stop` ends it"
    if holder is not None and holder.run_id == run_id:
        return f"{_sentence(target.name, holder)}; {_by_lease(target)}"
    if ended is not None and ended.left:
        return f"left on {target.name}: {', '.join(ended.left)}"
    others = "" if holder is None else f" of this run; {_sentence(target.name, holder)}"
    return f"nothing is left on {target.name}{others}"


def _by_lease(target: Target) -> str:
    return f"what still runs there ends with the lease, within {target.lease_s:.0f} s"


def _give_back(supervisor: Supervisor, holder: Holder, deadline: Deadline) -> str | None:
    """Stop all of that run, alive or dead. The new owner, when somebody else was quicker."""
    if holder.daemon_alive:
        busy = supervisor.release(deadline=deadline)
        return busy.holder.owner if busy else None
    reaped = supervisor.reap(deadline=deadline)
    return reaped.holder.owner if isinstance(reaped, Busy) else None


def _supervisor(target: Target, host: Host, run_id: str) -> Supervisor:
    at = resolved(target, host)
    return Supervisor(
        host, state_dir=at.state_dir, python=at.python, run_id=run_id, owner="bringup", lease_s=at.lease_s
    )


def _strangers(supervisor: Supervisor, deadline: Deadline) -> tuple[GpuProcess, ...]:
    """Who else is on the GPUs, where that can be told: no error of it hides who has the host."""
    try:
        return supervisor.strangers(deadline=deadline)
    except HostError:
        return ()


def _stranger(process: GpuProcess) -> dict[str, object]:
    return {"pid": process.pid, "name": process.name, "user": process.user, "used_mib": process.used_mib}


def _facts(holder: Holder) -> dict[str, object]:
    return {
        "owner": holder.owner, "run_id": holder.run_id, "since": holder.since, "kept": holder.kept,
        "keeper": holder.keeper, "alive": holder.daemon_alive, "running": list(holder.running),
        "ports": dict(holder.ports),
    }  # fmt: skip


def _sentence(name: str, holder: Holder | None) -> str:
    if holder is None:
        return f"{name} is free"
    servers = ", ".join(f"{id} on port {port}" for id in holder.running if (port := holder.ports.get(id)))
    beside = ", ".join(id for id in holder.running if not holder.ports.get(id))
    what = f"server {servers} (loopback there)" if servers else "no server there"
    what += f"; beside it {beside}" if beside else ""
    run = f"run {holder.run_id or 'unknown'}"
    if holder.kept:  # its owner is the run itself
        by = f" by {holder.keeper}" if holder.keeper else ""
        return f"{name} is kept{by} for {run} since {holder.since}; {what}"
    alive = "" if holder.daemon_alive else ", dead"
    return f"{name} is held by {holder.owner or 'somebody'} ({run}{alive}) since {holder.since}; {what}"
