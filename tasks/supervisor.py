"""Our side of the supervisor: take a host, start and stop servers on it, give it back (contracts §7)."""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tasks.remote.supervisor as remote
from settings.source import BadInput
from settings.target import resolve_path
from tasks.deadline import Deadline, pause
from tasks.host import DeadlinePassed, Host, HostError
from tasks.pure.preflight import GpuProcess

__all__ = [
    "Acquired",
    "Busy",
    "Ended",
    "ExitInfo",
    "Holder",
    "NotHeld",
    "Reaped",
    "ServerSpec",
    "ServerStatus",
    "Started",
    "Supervisor",
    "SupervisorFailed",
    "marks",
]

_SCRIPT = Path(remote.__file__).read_bytes()  # once: a checkout may be updated under a running flow
_WAIT_S = 20.0  # longest wait inside one remote command: a lost connection then costs no more than this
_AGAIN_S = 0.3
_TAIL = 10

EndedBy = Literal["self", "stop", "lease", "supervisor"]


def marks(state_dir: str) -> dict[str, str]:
    """Environment of a command that runs beside the servers: it ends with the run's hold on the host, as they do."""
    return {remote.MARK_ATTEMPT: "beside", remote.MARK_STATE: state_dir}


class SupervisorFailed(HostError):
    """The script on the host could not do its work: no Python 3.8 there, a folder that is not ours, a full disk."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The host is ours. `resumed`: it already was. `left`: what a dead run before us left that would not go away."""

    owner: str
    since: str
    resumed: bool
    left: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """It is held without a lease, for a server that was kept."""
        return self.owner.startswith("kept:")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the host. An empty owner: the lock is there, but cannot be read. `keeper`: who kept a server there."""

    owner: str
    run_id: str
    since: str
    kept: bool
    daemon_alive: bool
    running: tuple[str, ...] = ()  # ids of the attempts whose server runs
    ports: Mapping[str, int | None] = field(default_factory=dict)  # by id: where it listens on the host's loopback
    keeper: str = ""  # empty also where the lock is of an older release


@dataclass(frozen=True, slots=True)
class Busy:
    """The host is somebody else's."""

    holder: Holder


@dataclass(frozen=True, slots=True)
class NotHeld:
    """The host is not ours (any more): the lease ran out, or the supervisor died. `holder` has it now, if anybody."""

    holder: Holder | None


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What to run. `env` is added to the environment of the supervisor; its values are dropped once it was used."""

    id: str  # unique for good: an id that has ended never starts again
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    port: int | None = None  # has to be free again before the attempt counts as ended
    gpus: int = 0  # 0 = do not wait for GPU memory
    grace_s: float = remote.GRACE_S  # from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a server ended and who ended it."""

    by: EndedBy
    code: int | None  # 0..255 when it exited
    signal: int | None  # when a signal killed it; both None: nobody was left who saw it
    at: str  # UTC, the host's clock
    clean: bool | None  # None: its processes, GPU memory or port are being waited for; False: `left` would not go
    left: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    log: str  # path on the host; append-only, to be read by byte offset
    adopted: bool  # it already ran


@dataclass(frozen=True, slots=True)
class Ended:
    """That id has run and ended, or could not be run at all (`exit.why`). It is not started again."""

    exit: ExitInfo


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """`exited` without `exit`: dead, and nobody has accounted for it yet."""

    state: Literal["running", "exited", "unknown"]
    pid: int | None
    exit: ExitInfo | None
    daemon_alive: bool
    lease_age_s: float | None  # None: no lease (kept, or nobody has the host)
    listener: Literal["ours", "other", "none"] | None = None  # on the server's port; None: not running, or no port


@dataclass(frozen=True, slots=True)
class Reaped:
    """What was killed of a dead run, and what would not go away."""

    killed: tuple[int, ...]
    left: tuple[str, ...]


class Supervisor:
    """One run's hold on a host. Every call may be made again after a lost reply: the second changes nothing.

    Raises: HostError from every method: the tree in tasks/host.py, and SupervisorFailed.
    """

    def __init__(
        self, host: Host, *, state_dir: str, python: str, run_id: str, owner: str, lease_s: float | None
    ) -> None:
        self.host, self.run_id, self.owner, self.lease_s = host, run_id, owner, lease_s
        self._state_dir, self._python = state_dir, python
        self._uploaded = False

    @property
    def state_dir(self) -> str:
        return resolve_path(self._state_dir, self.host.home)

    def log_path(self, id: str) -> str:
        return self.attempt_path(id, "log")

    def attempt_path(self, id: str, name: str) -> str:
        """A file of an attempt on the host."""
        if not id or "/" in id or id.startswith("."):
            raise ValueError(f"'{id}' cannot be an attempt's id: it names a folder")
        return f"{self.state_dir}/attempts/{id}/{name}"

    def acquire(self, *, deadline: Deadline) -> Acquired | Busy:
        """Take the host: its own lock decides, whatever other machines think."""
        try:
            reply = self._verb("acquire", deadline, owner=self.owner, lease_s=self.lease_s)
        except DeadlinePassed:  # the guard of a dead run is still clearing away what that run left
            holder = self.holder(deadline=Deadline.after(_WAIT_S))
            if holder is None:
                raise
            return Busy(holder)
        if not reply["acquired"]:
            return Busy(_holder(reply))
        left = tuple(reply.get("reaped", {}).get("left", ()))
        return Acquired(reply["owner"], reply["since"], reply["resumed"], left)

    def start(self, spec: ServerSpec, *, deadline: Deadline) -> Started | Ended | NotHeld:
        """Start a server, or adopt the one that carries this id."""
        token = uuid.uuid4().hex
        content = {
            "run_id": self.run_id, "token": token, "argv": spec.argv, "env": dict(spec.env), "cwd": spec.cwd,
            "port": spec.port, "gpus": spec.gpus, "grace_s": spec.grace_s,
        }
        self.host.put(json.dumps(content).encode(), self.attempt_path(spec.id, "spec.json"), deadline=deadline)
        reply = self._verb("start", deadline, id=spec.id, token=token)
        if reply["started"]:
            return Started(reply["pid"], self.log_path(spec.id), reply["adopted"])
        return Ended(_exit(reply["exit"])) if reply["exit"] else NotHeld(_holder_or_none(reply))

    def status(self, id: str, *, deadline: Deadline) -> ServerStatus:
        reply = self._verb("status", deadline, id=id)
        ended = _exit(reply["exit"]) if reply["exit"] else None
        return ServerStatus(
            reply["state"], reply["pid"], ended, reply["daemon"], reply["lease_age_s"], reply["listener"]
        )

    def holder(self, *, deadline: Deadline) -> Holder | None:
        """Whoever has the host; None when it is free."""
        reply = self._verb("status", deadline)
        return _holder(reply) if reply["held"] else None

    def strangers(self, *, deadline: Deadline) -> tuple[GpuProcess, ...]:
        """Processes on the GPUs that are not ours; empty also where nobody can tell."""
        found = self._verb("status", deadline, strangers=True)["strangers"]
        return tuple(GpuProcess(p["pid"], p["name"], p["used_mib"], user=p["user"]) for p in found)

    def renew(self, *, deadline: Deadline) -> bool:
        """Push the lease's end away. False: the host is not ours any more."""
        return bool(self._verb("renew", deadline)["held"])

    def keep(self, *, deadline: Deadline) -> bool:
        """Drop the lease: the server outlives us until somebody stops it. False: the host is not ours any more."""
        return bool(self._verb("renew", deadline, keep=True)["held"])

    def ask_to_stop(self, id: str, *, deadline: Deadline) -> None:
        """One small write, for who has no time left; the supervisor does the rest."""
        self.host.put(b"", self.attempt_path(id, "stop"), deadline=deadline.sooner(5))

    def stop(self, id: str, *, deadline: Deadline) -> ExitInfo | Busy | None:
        """End a server and wait until the host is clean of it. None: no such attempt. Busy: it is another run's."""
        reply = self._verb("stop", deadline, id=id)
        if reply.get("refused"):
            return Busy(_holder(reply))
        return _exit(reply["exit"]) if reply["exit"] else None

    def release(self, *, deadline: Deadline) -> Busy | None:
        """Stop all servers and give the host back; the lock goes last. Busy: it is another run's, untouched."""
        reply = self._verb("release", deadline)
        return Busy(_holder(reply)) if reply.get("refused") else None

    def reap(self, *, deadline: Deadline) -> Reaped | Busy:
        """Clear away what a dead supervisor left. While one lives (Busy) it does nothing."""
        reply = self._verb("reap", deadline)
        return Reaped(tuple(reply["killed"]), tuple(reply["left"])) if reply["reaped"] else Busy(_holder(reply))

    def _verb(self, verb: str, deadline: Deadline, **ask: Any) -> dict[str, Any]:
        """The reply of a verb; asked again while it is pending. Raises: DeadlinePassed, SupervisorFailed, BadInput."""
        script = self._upload(deadline)
        while True:
            wait_s = max(0.0, min(_WAIT_S, deadline.left_s - 2))  # an answer before the deadline, not a killed command
            words = json.dumps({"run_id": self.run_id, "wait_s": wait_s, **ask})
            done = self.host.run([self._python, "-I", "-S", script, verb, self.state_dir, words], deadline=deadline)
            reply = _json(done.out)
            if reply is None and done.exited in (126, 127):  # env(1), timeout(1): cannot be run, not found
                raise BadInput(f"target {self.host.name}", "python", f"'{self._python}' cannot be run on the host")
            if reply is None or "error" in reply:
                said = reply["error"] if reply else "\n".join((done.err or done.out).splitlines()[-_TAIL:])
                raise SupervisorFailed(
                    f"{self.host.name}: supervisor {verb} in {self.state_dir} with {self._python} ended with"
                    f" {done.exited}: {said}"
                )
            if not reply.get("pending"):
                return reply
            if deadline.left_s <= 2:
                raise DeadlinePassed(
                    f"{self.host.name}: supervisor {verb} was not through before the deadline; it goes on"
                )
            pause(_AGAIN_S, deadline)

    def _upload(self, deadline: Deadline) -> str:
        """The script's path on the host: the name carries its content, so that an old one is never used by mistake."""
        path = f"{self.state_dir}/supervisor-{hashlib.sha256(_SCRIPT).hexdigest()[:12]}.py"
        if not self._uploaded and self.host.read(path, 0, 1, deadline=deadline).size != len(_SCRIPT):
            self.host.put(_SCRIPT, path, deadline=deadline, mode=0o700)
        self._uploaded = True
        return path


def _json(out: str) -> dict[str, Any] | None:
    """The last line of the output as an object: a login shell may have said something before."""
    try:
        value = json.loads(out.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _holder(reply: Mapping[str, Any]) -> Holder:
    owner = reply["owner"] or ""
    return Holder(
        owner, reply["run_id"] or "", reply["since"] or "", owner.startswith("kept:"),
        reply["daemon"], tuple(reply.get("running", ())), dict(reply.get("ports", {})), reply["keeper"] or "",
    )


def _holder_or_none(reply: Mapping[str, Any]) -> Holder | None:
    return _holder(reply) if reply["run_id"] else None


def _exit(reply: Mapping[str, Any]) -> ExitInfo:
    return ExitInfo(
        reply.get("by", "supervisor"), reply.get("code"), reply.get("signal"), reply.get("at", ""),
        reply.get("clean", False), tuple(reply.get("left", ())), reply.get("why", ""),
    )
