"""What holds for every host, on this machine and behind a real OpenSSH server."""

import errno
import os
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from settings.source import BadInput
from tasks.deadline import Deadline
from tasks.host import OUTPUT_LIMIT, DeadlinePassed, Host, HostError
from tests.tasks.conftest import is_running, until

AWKWARD = (
    "", " ", "a b", "it's", '"quoted"', "back\\slash", "two\nlines\n", "~", "~/x", "$HOME", "$(id)", "`id`", "!!", "*",
    ";", "a;b|c&d>e<f", "-n", "--", "%s", "{x,y}", "#", "äöü ā 漢字 🚀", "\x81\x88", "tab\there", "\x1b[31m", "\r\n",
)


def soon(seconds: float = 20.0) -> Deadline:
    return Deadline.after(seconds)


@pytest.mark.parametrize("code", [0, 1, 2, 124, 137, 255])
def test_the_exit_code_is_that_of_the_command(host: Host, code: int) -> None:
    assert code == host.run(["sh", "-c", f"exit {code}"], deadline=soon()).exited


@pytest.mark.parametrize("number", [6, 9, 11, 15])
def test_a_death_by_signal_is_its_negative_number(host: Host, number: int) -> None:
    assert -number == host.run(["sh", "-c", f"kill -{number} $$"], deadline=soon()).exited


def test_a_command_that_does_not_exist_exits_127_and_says_so(host: Host) -> None:
    done = host.run(["no-such-command-here"], deadline=soon())
    assert 127 == done.exited
    assert "no-such-command-here" in done.err


def test_output_and_errors_are_told_apart(host: Host) -> None:
    done = host.run(["sh", "-c", "echo out; echo err >&2"], deadline=soon())
    assert ("out\n", "err\n", False) == (done.out, done.err, done.cut)
    assert ("sh", "-c", "echo out; echo err >&2") == done.argv


def test_output_that_is_no_utf8_is_shown_as_far_as_it_is(host: Host) -> None:
    assert "a\ufffdb" == host.run(["printf", r"a\377b"], deadline=soon()).out


def test_output_is_drained_to_its_end_but_kept_only_up_to_the_limit(host: Host) -> None:
    noisy = "head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2; exit 3"
    done = host.run(["sh", "-c", noisy], deadline=soon())
    assert (3, OUTPUT_LIMIT, OUTPUT_LIMIT, True) == (done.exited, len(done.out), len(done.err), done.cut)


def test_output_up_to_the_limit_is_not_cut(host: Host) -> None:
    done = host.run(["head", "-c", str(OUTPUT_LIMIT), "/dev/zero"], deadline=soon())
    assert (OUTPUT_LIMIT, False) == (len(done.out), done.cut)


def test_arguments_arrive_literally(host: Host) -> None:
    done = host.run(["printf", "%s\\0", *AWKWARD], deadline=soon())
    assert list(AWKWARD) == done.out.split("\0")[:-1]


def test_a_long_argument_arrives_whole(host: Host) -> None:
    assert "100000\n" == host.run(["sh", "-c", "echo ${#1}", "sh", "x" * 100_000], deadline=soon()).out


def test_the_tilde_of_the_command_itself_is_the_home_folder(host: Host) -> None:
    assert f"{host.home}/no-such-program" in host.run(["~/no-such-program"], deadline=soon()).err


def test_environment_values_arrive_literally(host: Host) -> None:
    env = {f"V{i}": value for i, value in enumerate(AWKWARD)}
    show = 'for n in $(seq 0 25); do eval "printf \'%s\\0\' \\"\\$V$n\\""; done'
    done = host.run(["sh", "-c", show], env=env, deadline=soon())
    assert list(AWKWARD) == done.out.split("\0")[:-1]


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A;B"])
def test_what_is_no_name_of_a_variable_is_refused(host: Host, name: str) -> None:
    with pytest.raises(BadInput, match="no name"):
        host.run(["true"], env={name: "x"}, deadline=soon())


def test_a_null_byte_is_refused_and_not_dropped(host: Host) -> None:
    with pytest.raises(ValueError, match="null"):
        host.run(["echo", "a\0b"], deadline=soon())


def test_stdin_is_handed_over_and_ends(host: Host) -> None:
    sent = "line\n'quoted' ä\n" * 50_000
    assert sent == host.run(["cat"], stdin=sent.encode(), deadline=soon()).out


def test_without_stdin_the_command_reads_nothing(host: Host) -> None:
    assert "0\n" == host.run(["wc", "-c"], deadline=soon()).out


def test_a_command_need_not_read_its_stdin(host: Host) -> None:
    assert 0 == host.run(["true"], stdin=b"x" * 5_000_000, deadline=soon()).exited


def test_a_command_may_close_its_output_and_live_on(host: Host) -> None:
    assert 5 == host.run(["sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 5"], deadline=soon()).exited
    with pytest.raises(DeadlinePassed):
        host.run(["sh", "-c", "exec >&- 2>&-; sleep 62"], deadline=soon(0.5))


def test_a_process_left_behind_does_not_hold_the_caller(host: Host) -> None:
    began = time.monotonic()
    done = host.run(["sh", "-c", "sleep 30 & echo $!"], deadline=soon())
    os.kill(int(done.out), 9)
    assert 0 == done.exited
    assert time.monotonic() - began < 10


def test_the_deadline_ends_the_command_and_its_grandchildren_on_the_host(host: Host, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stubborn = f"trap '' TERM HUP; sh -c 'sleep 61 & echo $! >> {pids}; wait' & echo $! $$ >> {pids}; wait"
    with pytest.raises(DeadlinePassed, match=rf"{host.name}: .*sh -c"):
        host.run(["sh", "-c", stubborn], deadline=soon(1.5))
    named = [int(pid) for pid in pids.read_text().split()]
    assert 3 == len(named)
    until(lambda: not any(map(is_running, named)), f"{named} are gone")


def test_a_deadline_that_has_passed_starts_nothing(host: Host, tmp_path: Path) -> None:
    with pytest.raises(DeadlinePassed, match="not started"):
        host.run(["touch", str(tmp_path / "made")], deadline=soon(0))
    assert not (tmp_path / "made").exists()


def test_a_file_is_read_from_an_offset_and_up_to_a_limit(host: Host, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    chunk = host.read(str(tmp_path / "log"), 3, 4, deadline=soon())
    assert (b"3456", 3, 7, 10) == (chunk.data, chunk.offset, chunk.end, chunk.size)


def test_at_the_end_of_a_file_there_is_nothing_until_it_grows(host: Host, tmp_path: Path) -> None:
    log, seen = tmp_path / "log", b""
    log.write_bytes(b"")
    for part in (b"", b"one\n", b"\xff\x00two", b"", b"x" * 100_000):
        with log.open("ab") as file:
            file.write(part)
        chunk = host.read(str(log), len(seen), 1_000_000, deadline=soon())
        assert part == chunk.data
        seen += chunk.data
    assert log.read_bytes() == seen


def test_beyond_the_end_of_a_file_that_was_cut_there_is_nothing(host: Host, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"short")
    chunk = host.read(str(tmp_path / "log"), 100, 10, deadline=soon())
    assert (b"", 5) == (chunk.data, chunk.size)


def test_a_file_that_is_not_there_has_no_size(host: Host, tmp_path: Path) -> None:
    for path in ("none", "no/folder/none"):
        chunk = host.read(str(tmp_path / path), 7, 10, deadline=soon())
        assert (b"", 7, None) == (chunk.data, chunk.offset, chunk.size)


def test_what_cannot_be_read_is_said_with_its_path(host: Host, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=str(tmp_path)):
        host.read(str(tmp_path), 0, 10, deadline=soon())


def test_a_file_is_written_with_its_folders_and_only_for_us(host: Host, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    host.put(content, str(tmp_path / "a/b/file"), deadline=soon())
    assert content == (tmp_path / "a/b/file").read_bytes()
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/b", "a/b/file")]
    assert [0o700, 0o700, 0o600] == modes
    assert ["file"] == [p.name for p in (tmp_path / "a/b").iterdir()]


def test_a_file_is_written_with_the_mode_asked_for(host: Host, tmp_path: Path) -> None:
    host.put(b"#!/bin/sh\necho ran\n", str(tmp_path / "script"), mode=0o755, deadline=soon())
    assert "ran\n" == host.run([str(tmp_path / "script")], deadline=soon()).out


def test_a_folder_that_was_there_keeps_its_mode(host: Host, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    host.put(b"x", str(tmp_path / "file"), deadline=soon())
    assert 0o755 == stat.S_IMODE(tmp_path.stat().st_mode)


def test_what_cannot_be_written_is_said_with_its_path_and_leaves_nothing(host: Host, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(HostError, match="folder"):
        host.put(b"x", str(tmp_path / "folder"), deadline=soon())
    assert ["folder"] == [p.name for p in tmp_path.iterdir()]


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_half(host: Host, tmp_path: Path) -> None:
    path, sizes, done = tmp_path / "file", set[int](), threading.Event()
    host.put(b"a" * 300_000, str(path), deadline=soon())

    def look() -> None:
        while not done.is_set():
            content = path.read_bytes()
            assert len(set(content)) == 1
            sizes.add(len(content))

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        for letter in b"bcdefgh":
            host.put(bytes([letter]) * 300_000, str(path), deadline=soon())
        done.set()
        looking.result()
    assert {300_000} == sizes


@pytest.mark.parametrize("mark", ["~", "$HOME"])
def test_paths_may_begin_at_the_home_folder(host: Host, mark: str, tmp_path: Path) -> None:
    there = os.path.relpath(tmp_path, host.home)
    host.put(b"here", f"{mark}/{there}/file", deadline=soon())
    assert b"here" == host.read(f"{mark}/{there}/file", 0, 10, deadline=soon()).data == (tmp_path / "file").read_bytes()


def test_a_connection_to_a_port_carries_bytes_both_ways_to_their_end(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = host.open_tcp(server.getsockname()[1], deadline=soon())
        peer, _ = server.accept()
        stream.settimeout(10)
        assert 5 == stream.send(b"hello")
        assert b"hello" == peer.recv(5)
        peer.sendall(b"back")
        peer.close()
        assert [b"back", b""] == [stream.recv(4), stream.recv(4)]
        stream.close()


def test_a_silent_peer_is_a_timeout(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = host.open_tcp(server.getsockname()[1], deadline=soon())
        stream.settimeout(0.1)
        with pytest.raises(TimeoutError):
            stream.recv(1)
        stream.close()


def test_a_port_where_nothing_listens_is_refused(host: Host, unused_port: int) -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        host.open_tcp(unused_port, deadline=soon())
    assert errno.ECONNREFUSED == refused.value.errno


def test_twenty_four_threads_may_call_at_once(host: Host, tmp_path: Path) -> None:
    def call(n: int) -> tuple[str, bytes]:
        host.put(f"{n}".encode(), str(tmp_path / f"{n}"), deadline=soon(60))
        said = host.run(["sh", "-c", "sleep 0.2; echo $1", "sh", str(n)], deadline=soon(60)).out
        return said, host.read(str(tmp_path / f"{n}"), 0, 10, deadline=soon(60)).data

    with ThreadPoolExecutor(24) as threads:
        assert [(f"{n}\n", f"{n}".encode()) for n in range(24)] == list(threads.map(call, range(24)))
