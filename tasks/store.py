"""The folder of one run: record, report, logs and raw bench lines; each file is either the old or the new one."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from settings.source import BadInput
from tasks.page import html_report
from tasks.pure.record import RawFile, RunRecord
from tasks.pure.redact import Redactor
from tasks.pure.report import report

__all__ = ["RunFolder", "newest_run", "read_record", "records", "replace", "runs_root"]

_LONGEST_LINE = 64 * 1024  # a line without end is not looked at as a whole


class RunFolder:
    """`<root>/<run_id>/`. Secrets known to the redactor never reach a file in it."""

    def __init__(self, root: Path, run_id: str, redactor: Redactor) -> None:
        self.path, self.redactor = root / run_id, redactor
        self._begun: dict[Path, tuple[int, bytes]] = {}  # by log: where its unfinished line begins, and that line
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise BadInput(root, "", f"cannot hold runs: {e.strerror}") from e

    @property
    def record_path(self) -> Path:
        return self.path / "record.json"

    @property
    def report_path(self) -> Path:
        return self.path / "report.md"

    @property
    def page_path(self) -> Path:
        return self.path / "report.html"

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    def log_path(self, n: int, rung: str) -> Path:
        """Where the server's log of attempt `n` is kept."""
        return self.path / "logs" / f"{n:02d}-{rung}.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """No second process drives this run meanwhile. Raises: BadInput when one does."""
        with (self.path / ".held").open("w") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as e:
                raise BadInput(self.path, "", "this run is still going on") from e
            yield

    def begin_log(self, path: Path) -> None:
        """The server's log is read from its first byte: what an earlier reader copied goes."""
        path.unlink(missing_ok=True)

    def append_install_log(self, content: bytes) -> None:
        """Add what an installer was asked and said."""
        self.append_log(self.path / "install.log", content)

    def append_log(self, path: Path, content: bytes) -> None:
        """Add what was read, but for secrets. A line is looked at again when its rest has come."""
        path.parent.mkdir(exist_ok=True)
        at, begun = self._begun.get(path, (0, b""))
        begun += content
        with path.open("r+b" if path.exists() else "wb") as f:
            f.seek(at)
            f.truncate()
            f.write(self.redactor.bytes(begun))
            whole, newline, rest = begun.rpartition(b"\n")
            if len(rest) > _LONGEST_LINE:
                whole, newline, rest = begun, b"", b""
            self._begun[path] = (at + len(self.redactor.bytes(whole + newline)), rest)

    def write_record(self, record: RunRecord) -> RunRecord:
        """Record and report together; a killed run leaves the last complete ones. What was written, without secrets."""
        record = self.redactor.model(record)
        replace(self.record_path, (record.model_dump_json(indent=1) + "\n").encode())
        replace(self.report_path, report(record).encode("utf-8", "replace"))
        return record

    def write_page(self, record: RunRecord) -> None:
        """The report for a browser. It takes a second or two, hence once, at the end."""
        replace(self.page_path, html_report(self.redactor.model(record)).encode("utf-8", "replace"))

    def write_lock(self, text: str) -> None:
        """The winner, to be run again or taken away."""
        replace(self.path / "run.lock.toml", self.redactor.text(text).encode())

    def append_replies(self, n: int, lines: Iterable[str]) -> RawFile:
        """Calls of attempt `n`, one a line, after those that are there; secrets are taken out."""
        path = self.path / "decode" / f"{n:02d}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as f:
            f.writelines(self.redactor.text(line).encode() + b"\n" for line in lines)
        return RawFile(path=str(path.relative_to(self.path)), sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    def write_raw(self, name: str, content: bytes, *, under: str = "bench") -> RawFile:
        """A file of its own in that folder of the run's, unchanged but for secrets."""
        content = self.redactor.bytes(content)
        path = self.path / under / name
        path.parent.mkdir(exist_ok=True)
        replace(path, content)
        return RawFile(path=str(path.relative_to(self.path)), sha256=hashlib.sha256(content).hexdigest())


def replace(path: Path, content: bytes) -> None:
    """Write `path` in one step."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def runs_root(flag: str | None) -> Path:
    """Where runs lie: `--runs`, else `$BRINGUP_HOME/runs`, else `./runs`."""
    if flag:
        return Path(flag)
    return Path(os.environ.get("BRINGUP_HOME", ".")) / "runs"


def newest_run(root: Path) -> Path:
    """The folder of the run that began last. Raises: BadInput when there is none."""
    found = sorted(root.glob("*/record.json"))
    if not found:
        raise BadInput(root, "", "holds no run yet; make one with `bringup rehearse`")
    return found[-1].parent


def read_record(folder: Path) -> RunRecord:
    """The record in a run's folder (or the file itself). Raises: BadInput when it is absent or damaged."""
    path = folder if folder.suffix == ".json" else folder / "record.json"
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except OSError as e:
        raise BadInput(path, "", f"cannot be read: {e.strerror}") from e
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        raise BadInput(path, ".".join(map(str, first["loc"])), f"is no record of schema 1: {first['msg']}") from e


def records(root: Path) -> Iterator[RunRecord]:
    """All records that can be read, the newest first."""
    for path in sorted(root.glob("*/record.json"), reverse=True):
        try:
            yield read_record(path)
        except BadInput:  # another release's, or damaged: it is no reason not to run
            continue
