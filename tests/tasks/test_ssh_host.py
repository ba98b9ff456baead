"""What only a host behind SSH can do wrong: keys, logins, jump hosts, lost and frozen connections."""

import asyncio
import contextlib
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncssh
import pytest

from settings.source import BadInput
from tasks.deadline import Deadline
from tasks.host import DeadlinePassed, Host, HostError, HostKeyRefused, HostLost, HostUnreachable
from tasks.ssh_host import SshHost, _Stream
from tests.tasks.conftest import Sshd, StartSshd, descendants, make_key, until

pytestmark = pytest.mark.sshd


def soon(seconds: float = 15.0) -> Deadline:
    return Deadline.after(seconds)


def connected(sshd: Sshd, **changes: object) -> SshHost:
    return SshHost(sshd.target(**changes), deadline=soon())


# Who it is that answers


def test_an_unknown_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    said = rf"test-host: .*\[127.0.0.1\]:{sshd.port} is unknown.*SHA256:.*{tmp_path}/none"
    with pytest.raises(HostKeyRefused, match=said):
        connected(sshd, known_hosts_file=str(tmp_path / "none"))


def test_a_changed_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
    with pytest.raises(HostKeyRefused, match=f"CHANGED.*{tmp_path}/known:1"):
        connected(sshd, known_hosts_file=str(tmp_path / "known"))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_host_with_several_keys_shows_the_one_that_is_known(start_sshd: StartSshd, tmp_path: Path, kind: str) -> None:
    make_key(tmp_path / kind, kind)
    sshd = start_sshd(f"HostKey={tmp_path / kind}")
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / f'{kind}.pub').read_text()}")
    connected(sshd).close()


def test_an_alias_of_ssh_config_gives_address_port_user_key_and_known_hosts(sshd: Sshd, tmp_path: Path) -> None:
    target = sshd.target()
    (tmp_path / "config").write_text(
        f"Host gpu\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {target.user}\n  IdentityFile {sshd.identity}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {tmp_path}/none {sshd.known_hosts}\n"
    )
    alias = target.model_copy(update={
        "host": "gpu", "port": None, "user": None, "identity_file": None, "known_hosts_file": None,
        "ssh_config": str(tmp_path / "config"),
    })
    with SshHost(alias, deadline=soon()) as host:
        assert "here\n" == host.run(["echo", "here"], deadline=soon()).out


def test_ssh_config_cannot_switch_host_keys_off(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n")
    target = sshd.target(ssh_config=str(tmp_path / "config")).model_copy(update={"known_hosts_file": None})
    with pytest.raises(HostKeyRefused, match="/dev/null"):
        SshHost(target, deadline=soon())


def _through(jump: Sshd, sshd: Sshd, folder: Path) -> Path:
    (folder / "config").write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.identity}\n"
        f"Host 127.0.0.1\n  ProxyJump jump\n"
    )
    (folder / "known").write_text(sshd.known_hosts.read_text())
    return folder / "config"


def test_a_jump_host_leads_to_the_host(start_sshd: StartSshd, sshd: Sshd, tmp_path: Path) -> None:
    jump = start_sshd()
    config = _through(jump, sshd, tmp_path)
    with (tmp_path / "known").open("a") as known:
        known.write(jump.known_hosts.read_text())
    with connected(sshd, ssh_config=str(config), known_hosts_file=str(tmp_path / "known")) as host:
        assert str(jump.port) not in host.run(["sh", "-c", "echo $SSH_CONNECTION"], deadline=soon()).out
        jump.drop_connections()
        until(lambda: not jump.children(), "the jump host's connection is gone")
        assert "again\n" == host.run(["echo", "again"], deadline=soon()).out
        assert jump.children()


def test_the_key_of_a_jump_host_has_to_be_known_too(start_sshd: StartSshd, sshd: Sshd, tmp_path: Path) -> None:
    jump = start_sshd()
    config = _through(jump, sshd, tmp_path)
    with pytest.raises(HostKeyRefused, match=rf"127.0.0.1\]:{jump.port} is unknown"):
        connected(sshd, ssh_config=str(config), known_hosts_file=str(tmp_path / "known"))


# No connection


def test_a_refused_login_names_user_host_and_key(sshd: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger")
    with pytest.raises(HostUnreachable, match=rf"{sshd.target().user}@127.0.0.1.*authentication.*{tmp_path}/stranger"):
        connected(sshd, identity_file=str(tmp_path / "stranger"))


def test_a_key_that_is_not_there_is_named(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"identity_file: {tmp_path}/none"):
        connected(sshd, identity_file=str(tmp_path / "none"))


@pytest.mark.parametrize("key", ["identity_file", "known_hosts_file", "ssh_config"])
def test_a_folder_in_place_of_a_file_is_named(key: str, sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"target test-host: {key}: {tmp_path} is a folder on this machine"):
        connected(sshd, **{key: str(tmp_path)})
    with pytest.raises(BadInput, match=f"target test-host: {key}: ~nobody-of-that-name/x: "):
        connected(sshd, **{key: "~nobody-of-that-name/x"})


def test_an_ssh_config_that_cannot_be_read_is_named(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"ssh_config: {tmp_path}/none"):
        connected(sshd, ssh_config=str(tmp_path / "none"))
    (tmp_path / "config").write_text("Host\n\tnonsense\n")
    with pytest.raises(BadInput, match=f"{tmp_path}/config"):
        connected(sshd, ssh_config=str(tmp_path / "config"))


def test_a_refused_port_is_unreachable(sshd: Sshd, unused_port: int) -> None:
    with pytest.raises(HostUnreachable, match=f"test-host: .*127.0.0.1:{unused_port}"):
        connected(sshd, port=unused_port)


def test_an_unknown_name_is_unreachable(sshd: Sshd) -> None:
    with pytest.raises(HostUnreachable, match=r"no-such-host\.invalid.*name"):
        connected(sshd, host="no-such-host.invalid")


def test_a_server_that_accepts_and_stays_silent_is_unreachable_in_time(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(HostUnreachable, match="SSH server"):
            SshHost(sshd.target(port=silent.getsockname()[1]), deadline=soon(1.0))
        assert time.monotonic() - began < 4


# A connection that breaks


def test_a_connection_cut_in_mid_command_is_host_lost_at_once_and_the_next_call_works(start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    with connected(sshd) as host, ThreadPoolExecutor(1) as threads:
        running = threads.submit(host.run, ["sleep", "63"], deadline=soon(60))
        until(lambda: bool(_pids_of("sleep 63")), "the command runs")
        began = time.monotonic()
        sshd.drop_connections()
        with pytest.raises(HostLost, match=r"test-host: .*sleep 63"):
            running.result(5)
        assert time.monotonic() - began < 1
        assert 0 == host.run(["pkill", "-f", "^sleep 63$"], deadline=soon()).exited


def test_a_command_ends_by_its_deadline_though_the_connection_is_lost(start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    with connected(sshd) as host, ThreadPoolExecutor(1) as threads:
        running = threads.submit(host.run, ["sh", "-c", "trap '' HUP TERM; sleep 64; sleep 64"], deadline=soon(2.0))
        until(lambda: bool(_pids_of("sleep 64")), "the command runs")
        sshd.drop_connections()
        with pytest.raises(HostLost):
            running.result(5)
        assert _pids_of("sleep 64")
        until(lambda: not _pids_of("sleep 64"), "the command has ended")


def test_an_idle_connection_that_was_cut_is_not_noticed_by_the_caller(start_sshd: StartSshd, tmp_path: Path) -> None:
    sshd = start_sshd()
    with connected(sshd) as host:
        for call in _each_call(host, tmp_path):
            sshd.drop_connections()
            call()


def test_many_threads_reconnect_once_after_a_loss(start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    with connected(sshd) as host, ThreadPoolExecutor(12) as threads:
        sshd.drop_connections()
        until(lambda: not sshd.children(), "the connection is gone")
        done = list(threads.map(lambda n: host.run(["echo", str(n)], deadline=soon(30)).out, range(12)))
        assert [f"{n}\n" for n in range(12)] == done
        assert 1 == len(sshd.children())


def test_a_frozen_peer_is_host_lost_soon_after_the_deadline_whatever_is_asked(
    start_sshd: StartSshd, tmp_path: Path
) -> None:
    sshd = start_sshd()

    def frozen(call: Callable[[Host, Deadline], object]) -> float:
        began = time.monotonic()
        with pytest.raises(HostLost, match=r"test-host: .*deadline 0"):
            call(hosts[call], Deadline.after(0.5))
        took = time.monotonic() - began
        assert "here\n" == hosts[call].run(["echo", "here"], deadline=soon()).out
        return took

    calls: list[Callable[[Host, Deadline], object]] = [
        lambda host, deadline: host.run(["echo"], deadline=deadline),
        lambda host, deadline: host.read(str(tmp_path / "x"), 0, 1, deadline=deadline),
        lambda host, deadline: host.put(b"x", str(tmp_path / "x"), deadline=deadline),
        lambda host, deadline: host.open_tcp(1, deadline=deadline),
    ]
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        hosts = {call: stack.enter_context(connected(sshd)) for call in calls}
        for host in hosts.values():
            host.read(str(tmp_path / "x"), 0, 1, deadline=soon())
        sshd.drop_connections(signal.SIGSTOP)
        assert max(threads.map(frozen, calls)) < 6


def test_a_frozen_peer_is_noticed_long_before_a_far_deadline(start_sshd: StartSshd) -> None:
    sshd = start_sshd()
    with SshHost(sshd.target(), deadline=soon(), beat_s=0.4) as host, ThreadPoolExecutor(1) as threads:
        running = threads.submit(host.run, ["sleep", "65"], deadline=soon(3600))
        until(lambda: bool(_pids_of("sleep 65")), "the command runs")
        sshd.drop_connections(signal.SIGSTOP)
        with pytest.raises(HostLost):
            running.result(5)
        assert 0 == host.run(["pkill", "-f", "^sleep 65$"], deadline=soon()).exited


def test_a_log_is_read_over_a_lost_connection_without_loss_or_repetition(start_sshd: StartSshd, tmp_path: Path) -> None:
    sshd, log, seen = start_sshd(), tmp_path / "log", b""
    log.write_bytes(b"")
    with connected(sshd) as host:
        for n in range(12):
            with log.open("ab") as file:
                file.write(f"line {n}\n".encode() * 2000)
            if n % 4 == 2:
                sshd.drop_connections()
            while (chunk := host.read(str(log), len(seen), 7001, deadline=soon())).data:
                seen += chunk.data
    assert log.read_bytes() == seen


def test_a_host_that_was_closed_stays_closed(sshd: Sshd) -> None:
    host = connected(sshd)
    host.close()
    with pytest.raises(HostUnreachable, match="closed"):
        host.run(["true"], deadline=soon())


# What a server may forbid, and what a login shell may do


def test_a_server_without_sftp_is_told_what_it_lacks(start_sshd: StartSshd, tmp_path: Path) -> None:
    with connected(start_sshd(sftp=False)) as host:
        with pytest.raises(HostError, match="Subsystem sftp") as refused:
            host.read(str(tmp_path / "x"), 0, 1, deadline=soon())
        assert not isinstance(refused.value, HostLost)
        assert "runs\n" == host.run(["echo", "runs"], deadline=soon()).out


def test_few_sessions_are_shared_by_many_threads(start_sshd: StartSshd) -> None:
    with connected(start_sshd("MaxSessions=2")) as host, ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda n: host.run(["echo", str(n)], deadline=soon(30)).out, range(8)))
    assert [f"{n}\n" for n in range(8)] == done


SHELLS = [found for name in ("dash", "bash", "zsh", "fish", "tcsh") if (found := shutil.which(name))]


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell_will_do_and_may_greet(start_sshd: StartSshd, shell: str) -> None:
    greets = f'echo Welcome; echo Have fun >&2; exec {shell} -c "$SSH_ORIGINAL_COMMAND"'
    with connected(start_sshd(f"ForceCommand={greets}")) as host:
        argv = ["sh", "-c", 'printf "%s\n" "$X" "$1" >&2; cat', "", "a!b'\n"]
        done = host.run(argv, env={"X": "$y 'z'"}, stdin=b"in", deadline=soon())
        assert ("in", "$y 'z'\na!b'\n\n") == (done.out, done.err)


def test_an_account_that_may_run_nothing_is_unreachable_and_what_it_said_is_shown(start_sshd: StartSshd) -> None:
    with pytest.raises(HostUnreachable, match="not available"):
        connected(start_sshd("ForceCommand=echo This account is not available; exit 1"))


def test_secrets_are_in_no_process_list(start_sshd: StartSshd) -> None:
    sshd, lines, stop = start_sshd(), set[bytes](), threading.Event()

    def watch() -> None:
        """Note every command line below sshd, also of a process that lives for a millisecond only."""
        while not stop.is_set():
            lines.update(_bytes_of(Path(f"/proc/{pid}/cmdline")) for pid in descendants(sshd.process.pid))

    with connected(sshd, env={"HF_TOKEN": "hf_secret_of_the_target"}) as host, ThreadPoolExecutor(1) as threads:
        watching = threads.submit(watch)
        for _ in range(20):
            argv = ["sh", "-c", 'ps -eww -o args; printf %s "$HF_TOKEN $API_KEY" | wc -c']
            done = host.run(argv, env={"API_KEY": "key_of_the_call"}, deadline=soon())
            assert str(len("hf_secret_of_the_target key_of_the_call")) == done.out.split()[-1]
            lines.add(done.out.encode())
        stop.set()
        watching.result()
    seen = b"\n".join(lines)
    assert b"timeout\0-s\0KILL" in seen
    assert b"secret_of_the_target" not in seen
    assert b"key_of_the_call" not in seen


# Servers that do what sshd never does


Session = Callable[["asyncssh.SSHServerProcess[bytes]"], Coroutine[Any, Any, None]]
StartOdd = Callable[..., SshHost]


class _Server(asyncssh.SSHServer):
    """Lets anybody in; opens no channel when `refuses`."""

    def __init__(self, refuses: bool) -> None:
        self._refuses = refuses

    def begin_auth(self, username: str) -> bool:
        del username
        return False

    def session_requested(self) -> bool:
        return not self._refuses


@pytest.fixture
def start_odd(sshd: Sshd, tmp_path: Path) -> Iterator[StartOdd]:
    """Connect to an in-process server whose commands do what the test says."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def start(session: Session, *, refuses: bool = False, deadline_s: float = 5.0) -> SshHost:
        async def serve() -> int:
            server = await asyncssh.listen(
                "127.0.0.1", 0, server_host_keys=[str(sshd.folder / "host_key")], encoding=None,
                server_factory=lambda: _Server(refuses), process_factory=None if refuses else session,
            )
            return server.get_port()

        port = asyncio.run_coroutine_threadsafe(serve(), loop).result(10)
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {sshd.host_key}\n")
        target = sshd.target(port=port, known_hosts_file=str(tmp_path / "known"))
        return SshHost(target, deadline=soon(deadline_s))

    yield start
    loop.call_soon_threadsafe(loop.stop)


async def _begin(process: "asyncssh.SSHServerProcess[bytes]") -> bytes:
    """Read the script as sh would, print its mark, and give the script."""
    size = int(re.findall(r"bs=(\d+)", process.command or "")[0])
    script = await process.stdin.readexactly(size)
    process.stdout.write(script.split()[1] + b"\n")
    return script


def test_a_server_that_opens_no_session_is_unreachable_and_the_setting_is_named(start_odd: StartOdd) -> None:
    async def never(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        process.exit(0)

    with pytest.raises(HostUnreachable, match="MaxSessions"):
        start_odd(never, refuses=True, deadline_s=1.0)


def test_a_connection_closed_in_the_middle_of_the_output_is_host_lost(start_odd: StartOdd) -> None:
    async def session(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        script = await _begin(process)
        if b"HOME" in script:
            process.exit(0)
            return
        process.stdout.write(b"half of")
        await process.stdout.drain()
        process.channel.get_connection().abort()

    with start_odd(session) as host, pytest.raises(HostLost, match="echo"):
        host.run(["echo"], deadline=soon(5))


def test_a_channel_closed_without_an_exit_status_is_host_lost_and_no_exit_code(start_odd: StartOdd) -> None:
    async def session(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        script = await _begin(process)
        if b"HOME" in script:
            process.exit(0)
        else:
            process.close()

    with start_odd(session) as host, pytest.raises(HostLost, match="echo"):
        host.run(["echo"], deadline=soon(5))


def test_a_deadline_that_passes_while_all_sessions_are_busy_says_so(sshd: Sshd) -> None:
    with connected(sshd) as host, ThreadPoolExecutor(8) as threads:
        running = [threads.submit(host.run, ["sleep", "1.267"], deadline=soon()) for _ in range(8)]
        until(lambda: len(_pids_of("sleep 1.267")) >= 8, "all sessions are busy")
        with pytest.raises(DeadlinePassed, match="busy"):
            host.run(["true"], deadline=soon(0.1))
        assert [0] * 8 == [r.result().exited for r in running]


def _pids_of(command: str) -> list[int]:
    """Processes whose whole command line this is."""
    wanted = command.replace(" ", "\0").encode() + b"\0"
    return [int(p.parts[2]) for p in Path("/proc").glob("[0-9]*/cmdline") if _bytes_of(p) == wanted]


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _each_call(host: Host, folder: Path) -> list[Callable[[], object]]:
    return [
        lambda: host.run(["true"], deadline=soon()),
        lambda: host.put(b"x", str(folder / "file"), deadline=soon()),
        lambda: host.read(str(folder / "file"), 0, 1, deadline=soon()),
    ]


def test_a_connection_that_breaks_while_a_message_goes_out_is_lost_and_no_error_of_paramiko() -> None:
    """paramiko's send, recv and close raise EOFError then, which is no OSError."""

    def broken(*_: object) -> None:
        raise EOFError

    channel: Any = SimpleNamespace(send=broken, recv=broken, close=broken)
    link: Any = SimpleNamespace(alive=True, lost=lambda what, cause: HostLost(f"{what}: {cause!r}"))
    stream = _Stream(link, channel, "connection to port 1")
    with pytest.raises(HostLost):
        stream.send(b"x")
    with pytest.raises(HostLost):
        stream.recv(1)
    stream.close()
