"""Takes a host for one run and gives it back: connection, lock, lease, and what the host remembers of builds."""

import getpass
import hashlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from settings.accuracy import AccuracyGate
from settings.inputs import Inputs
from settings.source import BadInput
from tasks.connect import connect, resolved
from tasks.deadline import Deadline
from tasks.host import DeadlinePassed, Host, HostError, HostLost, HostUnreachable
from tasks.lease import Lease
from tasks.pure.accuracy import Questions, read_questions
from tasks.pure.record import Build
from tasks.runlog import log
from tasks.session import Progress, Session
from tasks.store import RunFolder
from tasks.supervisor import Acquired, Supervisor
from tasks.turn import Turn

__all__ = ["open_session", "remember_build", "seen_build"]

_LAST_WORD_S = 5.0  # on a cancel: what must be said to the host is one small write


@contextmanager
def open_session(
    inputs: Inputs, folder: RunFolder, run_id: str, *, named: str, show: Callable[[Progress], None],
    wait_s: float = 0.0, earlier: str | None = None,
) -> Iterator[Session]:  # fmt: skip
    """A connected, locked and leased host. On the way out the lock is given back, unless the server was kept.

    `named`: the target as a person named it, for what is said to people.
    `wait_s`: how long a busy host is waited for; the budget of the run begins after that.
    `earlier`: id of an attempt of this run whose server may still run. Any other that we find of this run is ended.
    Raises: HostError when there is no connection; HostBusy when another run (still) has the host.
    """
    settings = inputs.settings
    owner = f"{getpass.getuser()}@{socket.gethostname()}"

    def supervise(host: Host) -> Supervisor:
        target = resolved(inputs.target, host)
        return Supervisor(
            host, state_dir=target.state_dir, python=target.python, run_id=run_id, owner=owner, lease_s=target.lease_s
        )

    with connect(inputs.target, deadline=Deadline.after(settings.call_s)) as host:
        target = resolved(inputs.target, host)
        supervisor = supervise(host)

        def redacted(seen: Progress) -> None:
            show(replace(seen, text=folder.redactor.text(seen.text), line=folder.redactor.text(seen.line)))

        turn = Turn(supervisor, target.name, named, Deadline.after(wait_s), wait_s, settings.stop_s, redacted)
        taken, taken_up = _take(turn, earlier)
        log.info("host.locked", host=target.name, owner=owner, left=list(taken.left))
        session = Session(
            target=target, ladder=inputs.ladder, engine=inputs.engine, catalogue=inputs.catalogue,
            milestones=inputs.milestones, warmup_suite=inputs.warmup, decode_suite=inputs.decode,
            recheck_suite=inputs.recheck, load_test=inputs.load_test, profiles=inputs.profiles, settings=settings,
            accuracy=_questions(inputs), folder=folder, host=host, supervisor=supervisor,
            show=redacted, deadline=Deadline.after(inputs.ladder.budget.wall_s), kept=taken.kept, taken_up=taken_up,
        )  # fmt: skip
        lease = Lease(
            lambda: supervise(connect(inputs.target, deadline=Deadline.after(settings.call_s))), lease_s=target.lease_s
        )
        try:
            with lease:
                yield session
        except BaseException:
            if not session.kept:
                _say_last_word(session, _LAST_WORD_S)
            raise
        if not session.kept:
            _say_last_word(session, settings.stop_s)


def _questions(inputs: Inputs) -> tuple[AccuracyGate, Questions] | None:
    if inputs.accuracy is None:
        return None
    gate, raw = inputs.accuracy
    try:
        return gate, read_questions(raw, gate.questions)
    except ValueError as e:
        raise BadInput(gate.dataset, "", str(e)) from e


def _take(turn: Turn, earlier: str | None) -> tuple[Acquired, str | None]:
    """The host, and `earlier` when its server still runs or ended with nobody looking. Raises: HostBusy."""
    taken, supervisor, stop_s = turn.acquire(), turn.supervisor, turn.stop_s
    found = supervisor.status(earlier, deadline=Deadline.after(stop_s)) if earlier else None
    if taken.resumed and not (found and found.state == "running"):
        supervisor.release(deadline=Deadline.after(stop_s))
        taken = turn.acquire()
    died_unseen = found is not None and found.exit is not None and found.exit.by == "self"
    return taken, earlier if found and (found.state == "running" or died_unseen) else None


def _say_last_word(session: Session, patience_s: float) -> None:
    """Ask for the server's end, then for the lock's. What does not get through, the lease does: nothing is raised."""
    try:
        try:
            if session.running:
                session.supervisor.ask_to_stop(session.running, deadline=Deadline.after(_LAST_WORD_S))
        except (HostUnreachable, HostLost, DeadlinePassed):
            raise
        except (HostError, BadInput) as e:  # it answers, e.g. that its disk is full: a release writes nothing
            log.warning("server.not_stopped", why=str(e))
        session.supervisor.release(deadline=Deadline.after(patience_s))
        session.may_be_kept = False
    except (HostError, BadInput) as e:  # BadInput: its python is gone, or our key file
        log.warning("host.lost", while_="leaving", why=str(e), then=f"the lease of {session.target.lease_s} s ends it")


def seen_build(session: Session, build: Build) -> bool:
    """Whether this build has served on this host before: its kernels are compiled."""
    return session.host.read(_mark(session, build), 0, 1, deadline=session.call()).size is not None


def remember_build(session: Session, build: Build) -> None:
    """Note on the host that this build has served there. Only later waits grow shorter by it: no error is raised."""
    try:
        session.host.put(f"{build.version}\n".encode(), _mark(session, build), deadline=session.call())
    except HostError as e:
        log.warning("build.not_remembered", why=str(e))


def _mark(session: Session, build: Build) -> str:
    name = hashlib.sha256(f"{build.engine} {build.version} {build.commit} {build.freeze_sha256}".encode()).hexdigest()
    return f"{session.supervisor.state_dir}/builds/{name[:16]}"
