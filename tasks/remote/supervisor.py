"""Runs on the GPU host: owns the servers of one run, and leaves the host empty whatever dies (contracts §7).

One file, standard library only, Python 3.8 or newer: it is uploaded as it is, hence longer than the other modules.

    python3 supervisor.py VERB STATE_DIR '{"run_id": …}'      one JSON object on one line of stdout

Three processes: a *verb* (this command) comes and goes with its SSH session; the *daemon*, started by `acquire`, is
the parent of the servers and judges the lease; the *guard*, its child, sees the daemon die (end of a pipe) and reaps
for it. The flock on `lock` lives in daemon and guard together, so "nobody holds the flock" means that both are gone;
the server itself then died of PDEATHSIG, and what it left is reaped by the next `acquire`.

A process is ours when its environment carries our mark, when it is in a session that we made, or when it descends
from one that is ours. The mark alone does not do: setproctitle, which SGLang calls, overwrites what /proc shows of it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import pwd
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple

__all__ = ["MARK_ATTEMPT", "MARK_STATE", "main"]

MARK_ATTEMPT = "BRINGUP_ATTEMPT"
MARK_STATE = "BRINGUP_STATE"  # the same attempt id in another state_dir is none of ours

TICK_S = 0.1
SCAN_S = 0.5            # how often the daemon looks at the process table; stretched to 20 times what a look costs
GRACE_S = 10.0          # SIGTERM to SIGKILL; SGLang drains its running requests in that time
# For processes, GPU memory and port to go. Source: > 30 s was seen on GB300 (sglang 0.5.23 utils/network.py:64).
KEEP_S = 7 * 86400.0    # how long a closed attempt, and its log, stays on the host
CLEAN_S = 60.0
GPU_SLACK_MIB = 512     # memory.used may end this much above what it was at acquire
RECORD_BYTES = 4096     # `lock` is written in place at a fixed size: works on a full disk, and keeps the flock's inode
# Open files of a server. SGLang asks for as many itself, but gets none more where the hard limit is lower (0.5.23
# utils/common.py:2585); a login and a systemd service begin with 1024.
FILES = 65_535
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36

Json = Dict[str, Any]
_libc = ctypes.CDLL(None, use_errno=True)


# --- processes ------------------------------------------------------------------------------------------------


class Process(NamedTuple):
    """`pid` and `start` (clock ticks since boot) together name a process for good; a pid alone is used again."""

    pid: int
    start: int
    parent: int
    session: int
    zombie: bool


def process(pid: int) -> Optional[Process]:
    """The process now behind `pid`, or None. A zombie that still has threads (stuck in a driver, say) is no zombie."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        zombie = fields[0] in (b"Z", b"X") and len(os.listdir("/proc/%d/task" % pid)) <= 1
    except (OSError, IndexError):
        return None
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[3]), zombie)


def processes() -> Dict[int, Process]:
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {p.pid: p for p in found if p}


def lives(pid: Any, start: Any) -> bool:
    """Whether exactly that process is alive."""
    p = process(pid) if isinstance(pid, int) and pid > 0 else None
    return p is not None and p.start == start and not p.zombie


def send(p: Process, number: int) -> None:
    """Signal that process and no other. Where the kernel has pidfds, even a reuse in this very moment cannot be hit."""
    with suppress(OSError):
        if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            fd = os.pidfd_open(p.pid)
            try:
                if lives(p.pid, p.start):
                    signal.pidfd_send_signal(fd, number)
            finally:
                os.close(fd)
        elif lives(p.pid, p.start):
            os.kill(p.pid, number)


def mark_of(pid: int, state_dir: str) -> Optional[str]:
    """The attempt that a process was started for, when it was started from this state_dir."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            pairs = dict(item.partition(b"=")[::2] for item in f.read().split(b"\0"))
    except OSError:
        return None
    marked = pairs.get(MARK_STATE.encode())
    if not marked or os.path.realpath(os.fsdecode(marked)) != state_dir:
        return None
    return os.fsdecode(pairs.get(MARK_ATTEMPT.encode(), b"")) or None


class Ours(NamedTuple):
    """What makes a process ours; see the module's docstring."""

    state_dir: str
    attempts: Optional[Set[str]]               # marks to look for; None = any attempt of this state_dir
    sessions: Dict[int, int]                   # session -> start of its leader
    known: Set[Tuple[int, int]]                # (pid, start) seen before
    roots: Set[int]                            # pids whose descendants are ours, though they are not
    spare: Set[int]                            # never these: daemon, guard, the verb that looks

    def alive(self) -> List[Process]:
        table = processes()
        hits = {p.pid for p in table.values() if self._named(p, table)}
        grown = True
        while grown:
            more = {p.pid for p in table.values() if p.parent in hits or p.parent in self.roots} - hits - self.spare
            grown = bool(more)
            hits |= more
        return [table[pid] for pid in hits if not table[pid].zombie]

    def _named(self, p: Process, table: Dict[int, Process]) -> bool:
        if p.pid in self.spare or p.pid <= 1:
            return False
        if (p.pid, p.start) in self.known:
            return True
        if p.session in self.sessions:
            leader, start = table.get(p.session), self.sessions[p.session]
            if p.start >= start and (leader is None or leader.start == start):
                return True
        mark = mark_of(p.pid, self.state_dir)
        return mark is not None and (self.attempts is None or mark in self.attempts)


# --- files ----------------------------------------------------------------------------------------------------


def read_json(path: str) -> Optional[Json]:
    """The object in a file; None when there is none, {} when it is torn or no object."""
    try:
        with open(path, "rb") as f:
            value = json.loads(f.read().decode("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write(path: str, text: str) -> bool:
    """Replace a file in one step. False when the disk does not let us: the caller tries again later."""
    part = "%s.%d" % (path, os.getpid())
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(part, path)
        return True
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        return False


def write_json(path: str, value: Json) -> bool:
    return write(path, json.dumps(value) + "\n")


def forget_secrets(spec_path: str) -> None:
    """Keep the names of the environment, drop the values; in place, so that a full disk cannot prevent it."""
    spec = read_json(spec_path)
    if not spec or not isinstance(spec.get("env"), dict):
        return
    spec["env"] = sorted(spec["env"])
    with suppress(OSError):
        with open(spec_path, "r+b") as f:
            f.write(json.dumps(spec).encode("utf-8"))
            f.truncate()


def allow_files() -> None:
    """Let this process open as many files as the hard limit allows, up to FILES; never fewer than it may now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


class State:
    """The folder on the host in which all of this is kept."""

    def __init__(self, folder: str) -> None:
        self.umask = os.umask(0o077)  # the servers get back what the host's login gave
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.dir = os.path.realpath(folder)
        os.chmod(self.dir, 0o700)
        os.makedirs(self.path("attempts"), mode=0o700, exist_ok=True)

    def path(self, *names: str) -> str:
        return os.path.join(self.dir, *names)

    def attempt(self, id: str, *names: str) -> str:
        return self.path("attempts", id, *names)

    def attempts(self) -> List[str]:
        try:
            return sorted(e.name for e in os.scandir(self.path("attempts")) if e.is_dir())
        except OSError:
            return []

    def exit_of(self, id: str) -> Optional[Json]:
        return read_json(self.attempt(id, "exit.json"))

    @contextmanager
    def alone(self, wait_s: float) -> Iterator[None]:
        """No two processes look at the lock and act on what they saw at the same time. Raises: TimeoutError."""
        fd = os.open(self.path("mutex"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            wait_until(lambda: _flock(fd), wait_s) or _raise(TimeoutError("another verb is at work on this host"))
            yield
        finally:
            os.close(fd)

    def lock(self) -> Optional[Json]:
        """What `lock` says: None = no lock, {} = unreadable."""
        return read_json(self.path("lock"))

    def lock_is_held(self) -> bool:
        """Whether a daemon or a guard lives. Only inside `alone`: asking takes the flock for a moment."""
        try:
            fd = os.open(self.path("lock"), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _flock(fd)
        finally:
            os.close(fd)

    def lease_age_s(self) -> Optional[float]:
        """By the clock that also wrote it. A lease from the future (the clock was set back) counts as just renewed."""
        try:
            return max(0.0, time.time() - os.stat(self.path("lease")).st_mtime)
        except OSError:
            return None


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as e:
        if e.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise


def _raise(error: BaseException) -> NoReturn:
    raise error


def wait_until(true: Callable[[], Any], wait_s: float, every_s: float = 0.05) -> bool:
    end = time.monotonic() + wait_s
    while True:
        if true():
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(every_s)


# --- GPU and port ---------------------------------------------------------------------------------------------


def gpu_memory() -> Optional[Dict[str, int]]:
    """MiB in use by GPU index; None without nvidia-smi, or when it does not answer."""
    rows = _nvidia_smi("--query-gpu=index,memory.used")
    if rows is None:
        return None
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def gpu_left(baseline: Optional[Json], pids: Set[int]) -> List[str]:
    """What still stands in the way of the next server on the GPUs, in words."""
    apps = {row[0] for row in _nvidia_smi("--query-compute-apps=pid") or [] if row}
    left = ["pid %s is still on a GPU" % pid for pid in sorted(apps & {str(p) for p in pids})]
    if not baseline:
        return left
    used = gpu_memory()
    if used is None:
        return [*left, "the memory of the GPUs cannot be read any more"]
    return left + [
        "GPU %s holds %d MiB, %d at acquire" % (gpu, mib, baseline[gpu])
        for gpu, mib in sorted(used.items())
        if gpu in baseline and mib > baseline[gpu] + GPU_SLACK_MIB
    ]


def strangers_on_gpus(state: State) -> List[Json]:
    """Processes on the GPUs that are not ours; empty also where nvidia-smi does not answer."""
    rows = [row for row in _nvidia_smi("--query-compute-apps=pid,process_name,used_memory") or [] if len(row) == 3]
    daemon = (state.lock() or {}).get("pid")
    roots = {daemon} if isinstance(daemon, int) else set()
    ours = Ours(state.dir, None, open_attempts(state)[1], set(), roots, {os.getpid()})
    mine = {p.pid for p in ours.alive()}
    found = {}  # type: Dict[int, Json]  # a process on several GPUs has a row for each
    for pid, name, mib in ((int(row[0]), row[1], row[2]) for row in rows if row[0].isdigit()):
        if pid not in mine and process(pid):  # what is not in our process table may be anybody's
            seen = found.setdefault(pid, {"pid": pid, "name": name, "user": user_of(pid), "used_mib": 0})
            seen["used_mib"] += int(mib) if mib.isdigit() else 0
    return list(found.values())


def user_of(pid: int) -> Optional[str]:
    """Login name of a process's owner. Source: proc(5); the folder itself belongs to root where a process hides."""
    uid = ""
    try:
        with open("/proc/%d/status" % pid) as f:
            uid = f.read().partition("\nUid:")[2].split()[0]
        return pwd.getpwuid(int(uid)).pw_name
    except (OSError, IndexError, KeyError):  # KeyError: a uid without a name
        return "uid " + uid if uid else None


def _nvidia_smi(query: str) -> Optional[List[List[str]]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, query, "--format=csv,noheader,nounits"]
    try:
        smi = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    try:
        out = smi.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:  # stuck in the driver: do not wait for its end as subprocess.run would
        smi.kill()
        return None
    if smi.returncode != 0:
        return None
    return [[cell.strip() for cell in line.split(",")] for line in out.decode("utf-8", "replace").splitlines() if line]


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and 0 < value < 65536


def port_is_taken(port: Optional[int]) -> bool:
    """Whether anybody listens there, on any address."""
    if not port:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("", port))
        except OSError as e:
            return e.errno == errno.EADDRINUSE
    return False


def listener_on(port: int, ours: Iterable[Process]) -> str:
    """Who listens on a port: "ours", "other" or "none". A stranger's server would answer our questions as well."""
    sockets = {b"socket:[%s]" % inode for inode in _listening(port)}
    if not sockets:
        return "none"
    for p in ours:
        folder = "/proc/%d/fd" % p.pid
        with suppress(OSError):
            for name in os.listdir(folder):
                with suppress(OSError):
                    if os.fsencode(os.readlink("%s/%s" % (folder, name))) in sockets:
                        return "ours"
    return "other"


def _listening(port: int) -> Iterator[bytes]:
    """Inodes of the sockets in state LISTEN (0A) on that port. Source: proc(5), /proc/net/tcp."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            with open(table, "rb") as f:
                for row in f:
                    fields = row.split()
                    if len(fields) > 9 and fields[3] == b"0A" and int(fields[1].rpartition(b":")[2], 16) == port:
                        yield fields[9]


# --- reaping: when the one who knew is dead -------------------------------------------------------------------


def open_attempts(state: State) -> Tuple[List[Tuple[str, Json, Optional[Json]]], Dict[int, int]]:
    """Attempts that nobody closed (id, `started`, exit), and their servers' sessions: number -> start of the leader."""
    boot, open_, sessions = boot_id(), [], {}
    for id in state.attempts():
        done = state.exit_of(id)
        if done and done.get("clean") is not None:
            continue
        started = read_json(state.attempt(id, "started")) or {}
        open_.append((id, started, done))
        pid, start = started.get("pid"), started.get("start")
        if started.get("boot_id") == boot and isinstance(pid, int) and isinstance(start, int) and pid > 1:
            sessions[pid] = start
    return open_, sessions


def reap_all(state: State, known: Iterable[Tuple[int, int]] = (), baseline: Optional[Json] = None) -> Json:
    """Kill all that is ours, wait until it is gone, and close every attempt that nobody closed. Only inside `alone`."""
    seen = set(known)
    for id in state.attempts():
        forget_secrets(state.attempt(id, "spec.json"))
    open_, sessions = open_attempts(state)
    ours = Ours(state.dir, None, sessions, set(known), set(), {os.getpid()})

    def gone() -> bool:
        alive = ours.alive()
        for p in alive:
            seen.add((p.pid, p.start))
            send(p, signal.SIGKILL)
        return not alive

    left = [] if wait_until(gone, CLEAN_S) else [f"pid {p.pid} does not die" for p in ours.alive()]
    ports = {s["port"] for _, s, _ in open_ if _is_port(s.get("port")) and not s.get("port_was_taken")}
    if not wait_until(lambda: not any(map(port_is_taken, ports)), 10):
        left += ["port %d is still taken" % p for p in sorted(ports) if port_is_taken(p)]
    if any(s.get("gpus") for _, s, _ in open_):
        pids = {pid for pid, _ in seen}
        wait_until(lambda: not gpu_left(baseline, pids), CLEAN_S, every_s=1)
        left += gpu_left(baseline, pids)
    for id, _, done in open_:
        ended = done or {"by": "supervisor", "code": None, "signal": None, "at": utc()}
        write_json(state.attempt(id, "exit.json"), dict(ended, clean=not left, left=left))
    return {"killed": sorted(pid for pid, _ in seen - set(known)), "left": left}


# --- the daemon -----------------------------------------------------------------------------------------------


class Server:
    """One attempt in the daemon's memory, which is the truth; the files are what others may see of it."""

    def __init__(self, id: str, spec: Json) -> None:
        self.id = id
        self.port, self.gpus = spec.get("port"), spec.get("gpus") or 0
        self.grace_s, self.clean_s = float(spec.get("grace_s", GRACE_S)), float(spec.get("clean_s", CLEAN_S))
        self.port_was_taken = port_is_taken(self.port)
        self.leader: Optional[Process] = None
        self.asked: Optional[str] = None          # who wants it stopped: stop, lease, supervisor
        self.term_at: Optional[float] = None
        self.exit: Optional[Json] = None          # from the leader's end on
        self.clean_until = 0.0
        self.gpu_at = 0.0
        self.known: Set[Tuple[int, int]] = set()
        self.unwritten: Dict[str, str] = {}       # file -> content that the disk did not take yet


class Daemon:
    def __init__(self, state: State, lock_fd: int, record: Json) -> None:
        self.state, self.lock_fd, self.record = state, lock_fd, record
        self.servers: Dict[str, Server] = {}
        self.live: Dict[str, Server] = {}
        self.seen = set(state.attempts())         # closed before our time
        self.specs: Dict[str, int] = {}           # id -> inode of the spec.json whose secrets are gone
        self.ending: Optional[str] = None
        self.guard = self.pipe = 0
        self.told = b""
        self.renewed_at, self.renewed_mark = time.monotonic(), 0
        self.scan_at = 0.0

    def run(self, ready: int) -> None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(PR_SET_NAME, b"bringup-superv", 0, 0, 0)
        signal.signal(signal.SIGTERM, lambda _number, _frame: self.end("supervisor"))
        signal.signal(signal.SIGINT, lambda _number, _frame: self.end("supervisor"))
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self.end("stop"))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started us may have ignored it: exits would be lost
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        me = process(os.getpid())
        self.record.update(pid=os.getpid(), start=me.start if me else 0)
        self.spawn_guard()
        if self.record["lease_s"] is not None:
            os.close(os.open(self.state.path("lease"), os.O_WRONLY | os.O_CREAT, 0o600))
            os.utime(self.state.path("lease"))
        os.write(ready, json.dumps(self.record).encode("utf-8"))
        os.close(ready)
        while not (self.ending and not self.live):
            self.tick()
            time.sleep(TICK_S)
        self.leave()

    def end(self, why: str) -> None:
        """Stop all servers, then leave."""
        self.ending = self.ending or why

    def tick(self) -> None:
        if not _same(self.state.path("lock"), self.lock_fd):
            self.end("supervisor")  # nobody could find us to stop us any more
        if self.ending:
            for server in self.live.values():
                server.asked = server.asked or self.ending
            if not self.record.get("ending"):
                self.write_record(ending=self.ending)
        else:
            self.judge_lease()
        if time.monotonic() >= self.scan_at:
            self.look_around()
        for id in self.state.attempts():
            self.admit(id)
        for server in list(self.live.values()):
            self.step(server)
        for server in self.servers.values():
            for path, text in list(server.unwritten.items()):
                if write(path, text):
                    del server.unwritten[path]

    def judge_lease(self) -> None:
        """Any change of the file's time is a renewal; the age is counted on a clock that nobody can set."""
        lease_s = self.record["lease_s"]
        if lease_s is None:
            return
        if os.path.exists(self.state.path("keep")):
            self.write_record(**as_kept(self.record))
            for name in ("lease", "keep"):
                with suppress(OSError):
                    os.unlink(self.state.path(name))
            return
        try:
            mark = os.stat(self.state.path("lease")).st_mtime_ns
        except OSError:
            mark = self.renewed_mark
        if mark != self.renewed_mark:
            self.renewed_mark, self.renewed_at = mark, time.monotonic()
        elif time.monotonic() - self.renewed_at > lease_s:
            self.end("lease")

    def look_around(self) -> None:
        """Now and then: the guard lives and knows our processes, orphans are waited for, the lock is legible."""
        began = time.monotonic()
        table = processes()
        if not lives(self.guard, self.record["guard"][1]):
            with suppress(OSError):
                self.spawn_guard()
        leaders = {s.leader.pid for s in self.live.values() if s.leader}
        for p in table.values():
            if p.parent == os.getpid() and p.zombie and p.pid not in leaders:
                with suppress(OSError):
                    os.waitpid(p.pid, os.WNOHANG)
        if self.live:
            known = self.ours(None).alive()
            for server in self.live.values():
                if len(self.live) == 1:
                    server.known.update((p.pid, p.start) for p in known)
            self.tell_guard(known)
        if not self.state.lock() and not self.ending:
            self.write_record()
        now = time.monotonic()
        self.scan_at = now + max(SCAN_S, 20 * (now - began))

    def write_record(self, **changes: Any) -> None:
        self.record.update(changes)
        with suppress(OSError):
            os.pwrite(self.lock_fd, encode_record(self.record), 0)

    # starting

    def admit(self, id: str) -> None:
        """Start what a new spec.json asks for; drop the secrets of one that was sent a second time."""
        spec_path = self.state.attempt(id, "spec.json")
        try:
            inode = os.stat(spec_path).st_ino
        except OSError:
            return
        if self.specs.get(id) == inode:
            return
        spec = read_json(spec_path) or {}
        if id not in self.seen and spec.get("run_id", self.record["run_id"]) == self.record["run_id"]:
            self.seen.add(id)
            problem = self.problem_with(spec)
            self.servers[id] = server = Server(id, {} if problem else spec)
            if problem:
                self.close(server, {"by": "supervisor", "why": problem})
            elif self.ending or os.path.exists(self.state.attempt(id, "stop")):
                self.close(server, {"by": self.ending or "stop", "why": "it was not started"})
            else:
                try:
                    self.start(server, spec)
                except OSError as e:  # no process, no descriptor left
                    self.close(server, {"by": "supervisor", "why": "cannot fork: %s" % e})
        forget_secrets(spec_path)
        self.specs[id] = inode

    def problem_with(self, spec: Json) -> Optional[str]:
        argv, env = spec.get("argv"), spec.get("env")
        if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
            return "spec.json is torn or has no argv"
        if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
            return "spec.json has no env"
        if not (_is_port(spec.get("port")) or spec.get("port") is None):
            return "spec.json names a port that is none: %s" % spec["port"]
        if not all(isinstance(spec.get(name, 0), (int, float)) for name in ("gpus", "grace_s", "clean_s")):
            return "spec.json has a time or a number of GPUs that is no number"
        return None

    def start(self, server: Server, spec: Json) -> None:
        """Fork; the child waits at a gate until it is recorded, so that there is no server that nobody knows of."""
        gate, opener = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(gate)
            os.close(opener)
            raise
        if pid == 0:
            try:
                os.close(opener)
                self.become_server(server.id, spec, gate)
            finally:
                os._exit(127)
        os.close(gate)
        p = process(pid)
        assert p is not None  # our own child, not waited for
        server.leader = p
        server.known.add((p.pid, p.start))
        self.live[server.id] = server
        self.tell_guard(self.ours(None).alive())
        self.put(server, "server.pid", "%d\n" % pid)
        self.put(server, "started", json.dumps({
            "pid": pid, "start": p.start, "boot_id": self.record["boot_id"], "at": utc(), "token": spec.get("token"),
            "port": server.port, "gpus": server.gpus, "port_was_taken": server.port_was_taken,
        }) + "\n")
        with suppress(OSError):
            os.write(opener, b"go")
        os.close(opener)

    def become_server(self, id: str, spec: Json, gate: int) -> None:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        try:
            log = os.open(self.state.attempt(id, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:  # on a full disk: a server without a log is still a server
            log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.umask(self.state.umask)
        allow_files()
        env = dict(os.environ, **spec["env"])
        env.update({MARK_ATTEMPT: id, MARK_STATE: self.state.dir})
        if os.read(gate, 2) != b"go":
            return
        try:
            if spec.get("cwd"):
                os.chdir(spec["cwd"])
            os.execvpe(spec["argv"][0], spec["argv"], env)
        except (OSError, ValueError) as e:
            os.write(2, ("supervisor: cannot run %s: %s\n" % (spec["argv"][0], e)).encode("utf-8", "replace"))

    # ending

    def step(self, server: Server) -> None:
        assert server.leader is not None
        if server.exit is None:
            ended = os.waitid(os.P_PID, server.leader.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                by_signal = ended.si_code != os.CLD_EXITED
                server.exit = {
                    "by": server.asked or "self", "at": utc(),
                    "code": None if by_signal else ended.si_status, "signal": ended.si_status if by_signal else None,
                }
                server.clean_until = time.monotonic() + server.clean_s
                self.put(server, "exit.json", json.dumps(dict(server.exit, clean=None, left=[])) + "\n")
            elif server.asked is None and os.path.exists(self.state.attempt(server.id, "stop")):
                server.asked = "stop"
            if server.exit is None and server.asked:
                self.press(server, server.leader)
        if server.exit is not None:
            self.clean(server, server.leader)

    def press(self, server: Server, leader: Process) -> None:
        """SIGTERM to the server alone, it knows its own; after the grace SIGKILL to all of them."""
        if server.term_at is None:
            server.term_at = time.monotonic()
            send(leader, signal.SIGTERM)
        elif time.monotonic() - server.term_at > server.grace_s:
            for p in self.ours(server).alive():
                send(p, signal.SIGKILL)

    def clean(self, server: Server, leader: Process) -> None:
        """After the server's end: kill what it left, wait for GPU memory and port, then close the attempt."""
        left = []
        for p in self.ours(server).alive():
            server.known.add((p.pid, p.start))
            send(p, signal.SIGKILL)
            left.append("pid %d does not die" % p.pid)
        now = time.monotonic()
        over = now > server.clean_until
        if left and not over:
            return
        if not server.port_was_taken and port_is_taken(server.port):
            left.append("port %s is still taken" % server.port)
        if server.gpus and (now >= server.gpu_at or over):
            server.gpu_at = now + 1
            left += gpu_left(self.record.get("gpu_mib"), {pid for pid, _ in server.known})
        elif server.gpus:
            return
        if left and not over:
            return
        # Only now: as a zombie it kept its pid, which is its session's number, from being used again.
        with suppress(OSError):
            os.waitpid(leader.pid, os.WNOHANG)
        self.close(server, dict(server.exit or {}), left)

    def close(self, server: Server, ended: Json, left: Iterable[str] = ()) -> None:
        full = dict({"at": utc(), "code": None, "signal": None}, **ended)
        server.exit = dict(full, clean=not left, left=list(left))
        self.put(server, "exit.json", json.dumps(server.exit) + "\n")
        self.live.pop(server.id, None)

    def put(self, server: Server, name: str, text: str) -> None:
        path = self.state.attempt(server.id, name)
        server.unwritten.pop(path, None)
        if not write(path, text):
            server.unwritten[path] = text

    def ours(self, server: Optional[Server]) -> Ours:
        """All of ours, or those of one server. The last one living also answers for orphans without any mark."""
        mine = list(self.live.values()) if server is None else [server]
        alone = len(self.live) <= 1
        return Ours(
            self.state.dir,
            {s.id for s in mine},
            {s.leader.pid: s.leader.start for s in mine if s.leader},
            set().union(*(s.known for s in mine)) if mine else set(),
            {os.getpid()} if alone or server is None else set(),
            {os.getpid(), self.guard},
        )

    # the guard

    def spawn_guard(self) -> None:
        ear, pipe = os.pipe()
        os.set_blocking(pipe, False)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(pipe)
                if self.pipe:
                    os.close(self.pipe)
                stand_guard(self.state, self.lock_fd, ear, self.record.get("gpu_mib"))
            except BaseException:  # noqa: BLE001 - a last word in supervisor.log; the next acquire reaps
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(ear)
        if self.pipe:
            os.close(self.pipe)
        self.pipe, self.told = pipe, b""
        self.guard, p = pid, process(pid)
        if self.live:
            self.tell_guard(self.ours(None).alive())
        self.write_record(guard=[pid, p.start if p else 0])  # from here on others may count on it

    def tell_guard(self, known: Iterable[Process]) -> None:
        """A guard that cannot be told (dead, or stopped) still has marks and sessions to go by."""
        line = json.dumps(sorted([p.pid, p.start] for p in known)).encode("ascii") + b"\n"
        if line != self.told:
            self.told = line
            with suppress(OSError):
                os.write(self.pipe, line)

    def leave(self) -> None:
        """End what ran beside the servers (an install that was cut), then release the lock; then the guard may go."""
        with suppress(OSError):  # the folder itself may be gone
            with self.state.alone(CLEAN_S):
                if _same(self.state.path("lock"), self.lock_fd):
                    reap_all(self.state)
                drop_lock(self.state, self.lock_fd)
        with suppress(OSError):
            os.write(self.pipe, b"\nbye\n")


def stand_guard(state: State, lock_fd: int, ear: int, baseline: Optional[Json]) -> None:
    """Until the daemon says goodbye, or is no more: then do what it would have done."""
    os.setsid()
    _libc.prctl(PR_SET_NAME, b"bringup-guard", 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    heard, known = b"", set()  # type: Tuple[bytes, Set[Tuple[int, int]]]
    while True:
        select.select([ear], [], [])
        more = os.read(ear, 65536)
        *lines, heard = (heard + more).split(b"\n")
        for line in lines:
            if line == b"bye":
                return
            with suppress(ValueError):
                known = {(pid, start) for pid, start in json.loads(line.decode("ascii"))} if line else known
        if not more:
            break
    if not os.path.isdir(state.dir):
        reap_all(state, known, baseline)
        return
    with state.alone(CLEAN_S):
        if _same(state.path("lock"), lock_fd):
            reap_all(state, known, baseline)
            drop_lock(state, lock_fd)


def _same(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def drop_lock(state: State, lock_fd: int) -> None:
    """Remove the lock, when it is still the one that we hold. Only inside `alone`."""
    if _same(state.path("lock"), lock_fd):
        forget_lock(state)


def forget_lock(state: State) -> None:
    for name in ("keep", "lease", "lock"):
        with suppress(OSError):
            os.unlink(state.path(name))


def as_kept(record: Json) -> Json:
    """What a lock says once no lease ends it: its owner is the run, and who took the host stays known."""
    return {"owner": "kept:%s" % record["run_id"], "keeper": record["owner"], "lease_s": None}


def encode_record(record: Json) -> bytes:
    return json.dumps(record).encode("ascii").ljust(RECORD_BYTES - 1) + b"\n"


# --- the verbs ------------------------------------------------------------------------------------------------


def acquire(state: State, ask: Json) -> Json:
    """Take the host for a run. Asked again by the run that has it, it says so."""
    run_id = ask["run_id"]
    with state.alone(ask["wait_s"]):
        said = state.lock()
        if state.lock_is_held():
            if said and said.get("run_id") == run_id:
                if not _held_by(state, ask):
                    return {"pending": True}  # it ends, or its guard clears away: soon the host is free
                with suppress(OSError):
                    os.utime(state.path("lease"))
                return dict(_holder(said), acquired=True, resumed=True)
            return dict(_holder(said or {}), acquired=False)
        if said and said.get("boot_id") == boot_id() and said.get("run_id") != run_id:
            age_s, lease_s = state.lease_age_s(), said.get("lease_s")
            if isinstance(lease_s, (int, float)) and age_s is not None and age_s <= lease_s:
                return dict(_holder(said), acquired=False)
        reaped = reap_all(state, baseline=(said or {}).get("gpu_mib"))
        forget_lock(state)
        forget_attempts(state)
        record = {
            "owner": ask["owner"], "run_id": run_id, "boot_id": boot_id(), "since": utc(),
            "lease_s": ask["lease_s"], "gpu_mib": gpu_memory(),
        }
        if ask["lease_s"] is None:
            record.update(as_kept(record))
        lock_fd = os.open(state.path("lock"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _flock(lock_fd)
            os.pwrite(lock_fd, encode_record(record), 0)
            born = spawn_daemon(state, lock_fd, record)
        except OSError:
            os.unlink(state.path("lock"))
            raise
        return dict(_holder(born), acquired=True, resumed=False, reaped=reaped)


def forget_attempts(state: State) -> None:
    """Remove what was closed long ago: the daemon looks through all of it many times a second."""
    for id in state.attempts():
        with suppress(OSError):
            age_s = time.time() - os.stat(state.attempt(id, "exit.json")).st_mtime
            if age_s > KEEP_S and (state.exit_of(id) or {}).get("clean") is not None:
                shutil.rmtree(state.attempt(id))


def spawn_daemon(state: State, lock_fd: int, record: Json) -> Json:
    """Fork twice, away from the SSH session and its descriptors. Returns its record once it is at work."""
    ear, ready = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _leave_descriptors(state, keep={lock_fd, ready})
                os.environ.pop(MARK_ATTEMPT, None)
                os.chdir("/")
                Daemon(state, lock_fd, record).run(ready)
        except BaseException:  # noqa: BLE001 - the guard sees us go and reaps; this is for who reads supervisor.log
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(ready)
    os.close(lock_fd)
    os.waitpid(child, 0)
    told = os.read(ear, RECORD_BYTES)
    os.close(ear)
    if not told:
        raise OSError("the daemon did not start, see %s" % state.path("supervisor.log"))
    born: Json = json.loads(told.decode("utf-8"))
    return born


def _leave_descriptors(state: State, keep: Set[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        log = os.open(state.path("supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError:
        log = null
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):
                os.close(int(name))


def start(state: State, ask: Json) -> Json:
    """Wait until the daemon has taken up the spec.json that was put there. Asked again, it adopts what runs."""
    id = ask["id"]

    def taken_up() -> Optional[Json]:
        ended = state.exit_of(id)
        if ended is not None:
            return {"started": False, "exit": ended}
        started = read_json(state.attempt(id, "started"))
        if started:
            return {"started": True, "pid": started.get("pid"), "adopted": started.get("token") != ask["token"]}
        if not _held_by(state, ask):
            forget_secrets(state.attempt(id, "spec.json"))
            return dict(_holder(state.lock() or {}), started=False, exit=None)
        return None

    return _poll(taken_up, ask["wait_s"])


def status(state: State, ask: Json) -> Json:
    said = state.lock() or {}
    view = dict(_holder(said), lease_age_s=state.lease_age_s())
    if "id" not in ask:
        going = [id for id in state.attempts() if state.exit_of(id) is None and _state_of(state, id)[0] == "running"]
        ports = {id: (read_json(state.attempt(id, "started")) or {}).get("port") for id in going}
        strangers = strangers_on_gpus(state) if ask.get("strangers") else None
        return dict(view, held=state.lock() is not None, running=going, ports=ports, strangers=strangers)
    what, pid = _state_of(state, ask["id"])
    listener = _listener(state, ask["id"]) if what == "running" else None
    return dict(view, state=what, pid=pid, exit=state.exit_of(ask["id"]), listener=listener)


def _listener(state: State, id: str) -> Optional[str]:
    started = read_json(state.attempt(id, "started")) or {}
    port, pid = started.get("port"), started.get("pid")
    if not port or not isinstance(pid, int):
        return None
    ours = Ours(state.dir, {id}, {pid: started.get("start", 0)}, set(), {pid}, {os.getpid()})
    return listener_on(port, ours.alive())


def _state_of(state: State, id: str) -> Tuple[str, Optional[int]]:
    if state.exit_of(id) is not None:
        return "exited", None
    started = read_json(state.attempt(id, "started"))
    if not started:
        return "unknown", None
    pid = started.get("pid")
    return ("running", pid) if lives(pid, started.get("start")) else ("exited", None)


def renew(state: State, ask: Json) -> Json:
    """Touch the lease; with `keep`, give the host to nobody's lease: it is kept until somebody stops it."""
    if not _held_by(state, ask):
        return {"held": False}
    if ask.get("keep"):
        os.close(os.open(state.path("keep"), os.O_WRONLY | os.O_CREAT, 0o600))

        def kept() -> Optional[Json]:
            if not _held_by(state, ask):
                return {"held": False}
            return {"held": True} if (state.lock() or {}).get("lease_s") is None else None

        return _poll(kept, ask["wait_s"])
    try:
        os.utime(state.path("lease"))
    except FileNotFoundError:
        return {"held": (state.lock() or {}).get("lease_s") is None}
    return {"held": True}


def stop(state: State, ask: Json) -> Json:
    """Ask for a server's end and wait for it, until the host is clean of it."""
    id = ask["id"]
    if not os.path.exists(state.attempt(id, "spec.json")):
        return {"exit": None}
    said = state.lock()
    if not _may_stop(said, ask):
        return dict(_holder(said or {}), refused=True)
    if state.exit_of(id) is None:
        with suppress(OSError):
            os.close(os.open(state.attempt(id, "stop"), os.O_WRONLY | os.O_CREAT, 0o600))

    def closed() -> Optional[Json]:
        ended = state.exit_of(id)
        if ended and ended.get("clean") is not None:
            return {"exit": ended}
        said = state.lock()
        if said is None:
            return {"exit": state.exit_of(id)}
        if not lives(said.get("pid"), said.get("start")):
            reap(state, ask)  # unless a guard is about it: after a reboot nobody else would
        return None

    return _poll(closed, ask["wait_s"])


def release(state: State, ask: Json) -> Json:
    """Stop everything of the run and give the host back; waits for it."""
    held = state.lock()  # looked at once: who takes the host from here on is not the one whose end was allowed
    if not _may_stop(held, ask):
        return dict(_holder(held or {}), refused=True)
    run_id = (held or {}).get("run_id")

    def released() -> Optional[Json]:
        said = state.lock()
        if said is None or said.get("run_id", run_id) != run_id:
            return {"released": True}
        daemon = process(said["pid"]) if lives(said.get("pid"), said.get("start")) else None
        if daemon:
            send(daemon, signal.SIGUSR1)
        else:
            reap(state, ask)
        return None

    return _poll(released, ask["wait_s"])


def reap(state: State, ask: Json) -> Json:
    """Clear away what a dead supervisor left. While one lives it does nothing: the host is its own."""
    with state.alone(ask["wait_s"]):
        said = state.lock()
        if state.lock_is_held():
            return dict(_holder(said or {}), reaped=False)
        done = reap_all(state, baseline=(said or {}).get("gpu_mib"))
        forget_lock(state)
        return dict(done, reaped=True)


def _holder(said: Json) -> Json:
    names = ("owner", "keeper", "run_id", "since", "lease_s", "pid", "guard", "ending")
    return dict({name: said.get(name) for name in names}, daemon=lives(said.get("pid"), said.get("start")))


def _held_by(state: State, ask: Json) -> bool:
    said = state.lock() or {}
    return (
        said.get("run_id") == ask["run_id"] and not said.get("ending") and lives(said.get("pid"), said.get("start"))
    )


def _may_stop(said: Optional[Json], ask: Json) -> bool:
    """Only the run that has the host, a kept one as well: one that lost it may wake much later and leave."""
    return not said or said.get("run_id") == ask["run_id"]


def _poll(value: Callable[[], Optional[Json]], wait_s: float) -> Json:
    """The first value that is not None, or `pending`."""
    end = time.monotonic() + wait_s
    while True:
        found = value()
        if found is not None:
            return found
        if time.monotonic() >= end:
            return {"pending": True}
        time.sleep(0.05)


VERBS = {
    "acquire": acquire, "start": start, "status": status, "renew": renew,
    "stop": stop, "release": release, "reap": reap,
}  # type: Dict[str, Callable[[State, Json], Json]]


def main(argv: List[str]) -> int:
    """One verb. What went as foreseen is exit 0 and one JSON line; all else exit 1 and a JSON line with `error`."""
    if len(argv) != 4 or argv[1] not in VERBS:
        print(json.dumps({"error": "usage: supervisor.py %s STATE_DIR JSON" % "|".join(VERBS)}))
        return 2
    try:
        answer = VERBS[argv[1]](State(argv[2]), dict({"wait_s": 10.0}, **json.loads(argv[3])))
    except TimeoutError:
        answer = {"pending": True}
    except (OSError, ValueError, KeyError) as e:
        print(json.dumps({"error": "%s: %s" % (type(e).__name__, e)}))
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
