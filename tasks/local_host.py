"""This machine as a host, so that a rehearsal, or a run on the GPU machine itself, takes the path that SSH takes."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from settings.target import resolve_path
from tasks._command import DRAIN_S, BoundedBytes, brief, checked, timeboxed
from tasks.deadline import Deadline
from tasks.host import ByteStream, Completed, DeadlinePassed, HostError, LogChunk

__all__ = ["LocalHost"]

_PIECE = 64 * 1024


class LocalHost:
    """The machine that we run on. `env` is added to the environment of everything that is run."""

    def __init__(self, name: str = "local", *, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.home = str(Path.home())
        self._env = {k: resolve_path(v, self.home) for k, v in checked(env or {}).items()}

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: Deadline,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Completed:
        """See Host.run. The command has a session of its own; the deadline kills its whole process group."""
        given_s = deadline.left_s
        command = timeboxed(argv, home=self.home, deadline=deadline, host=self.name)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **self._env, **checked(env or {})},
                start_new_session=True,
            )
        except OSError as e:
            raise HostError(f"{self.name}: cannot start `{brief(argv)}`: {e.strerror}; coreutils is needed") from e
        with process:
            try:
                out, err = _pump(process, stdin, deadline)
                with contextlib.suppress(subprocess.TimeoutExpired):  # it may have closed its output and live on
                    process.wait(deadline.left_s)
            finally:
                if process.poll() is None:
                    _kill_group(process.pid)
            exited = process.wait()
        if exited < 0 and deadline.passed:
            raise DeadlinePassed(
                f"{self.name}: `{brief(argv)}` (deadline {given_s:.1f} s) did not end before it and was killed"
            )
        return Completed(tuple(argv), exited, out.text(), err.text(), out.cut or err.cut)

    def read(self, path: str, offset: int, limit: int, *, deadline: Deadline) -> LogChunk:
        del deadline  # a local file does not wait
        try:
            with open(resolve_path(path, self.home), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(offset)
                return LogChunk(file.read(limit), offset, size)
        except FileNotFoundError:
            return LogChunk(b"", offset, None)
        except OSError as e:
            raise HostError(f"{self.name}: cannot read {path}: {e.strerror}") from e

    def put(self, content: bytes, path: str, *, deadline: Deadline, mode: int = 0o600) -> None:
        del deadline
        target = Path(resolve_path(path, self.home))
        try:
            _make_folder(target.parent)
            handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with open(handle, "wb") as file:
                    os.fchmod(file.fileno(), mode)
                    file.write(content)
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as e:
            raise HostError(f"{self.name}: cannot write {path}: {e.strerror}") from e

    def open_tcp(self, port: int, *, deadline: Deadline) -> ByteStream:
        try:
            stream = socket.create_connection(("127.0.0.1", port), timeout=deadline.left_s)
        except TimeoutError as e:
            raise DeadlinePassed(f"{self.name}: no connection to port {port} before the deadline") from e
        except ConnectionRefusedError:
            raise
        except OSError as e:
            raise HostError(f"{self.name}: no connection to port {port}: {e.strerror or e}") from e
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def close(self) -> None:
        """Nothing is held open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pump(process: subprocess.Popen[bytes], stdin: bytes, deadline: Deadline) -> tuple[BoundedBytes, BoundedBytes]:
    """Feed and drain the command until its pipes close, or DRAIN_S after its exit; kill its group at the deadline."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, err, unsent = BoundedBytes(), BoundedBytes(), memoryview(stdin)
    sinks: dict[IO[bytes], BoundedBytes] = {process.stdout: out, process.stderr: err}
    drained: Deadline | None = None
    with selectors.DefaultSelector() as ready:
        for stream in sinks:
            ready.register(stream, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        ready.register(process.stdin, selectors.EVENT_WRITE)
        while any(stream in ready.get_map() for stream in sinks) and not (drained and drained.passed):
            for key, _ in ready.select(timeout=min(deadline.left_s, 0.05 if drained is None else drained.left_s)):
                if key.fileobj is process.stdin:
                    unsent = _feed(process.stdin, unsent)
                    if not unsent:
                        ready.unregister(process.stdin)
                        process.stdin.close()
                elif data := os.read(key.fd, _PIECE):
                    sinks[key.fileobj].take(data)  # type: ignore[index]
                else:
                    ready.unregister(key.fileobj)
            if deadline.passed and process.poll() is None:
                _kill_group(process.pid)
            if drained is None and process.poll() is not None:
                drained = Deadline.after(DRAIN_S)
    return out, err


def _feed(pipe: IO[bytes], unsent: memoryview) -> memoryview:
    """What is still to be sent; empty when the command no longer reads."""
    try:
        return unsent[os.write(pipe.fileno(), unsent[:_PIECE]) if unsent else 0:]
    except BlockingIOError:
        return unsent
    except BrokenPipeError:
        return unsent[:0]


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _make_folder(folder: Path) -> None:
    """mkdir -p with 0700 for each folder that is made."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
