"""Structured logging: every event goes to the run's JSONL file, milestones also to whoever listens (contracts §8)."""

import threading
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import structlog

from tasks.pure.redact import Redactor

__all__ = ["MILESTONES", "Listener", "RunLog", "log"]

MILESTONES = frozenset(
    {
        "run.started", "run.ended", "run.published", "run.not_published", "host.waiting", "host.locked", "host.probed",
        "host.lost", "attempt.started", "attempt.ended", "server.launched", "server.adopted", "server.ready",
        "server.doomed", "server.stopped", "stage.started", "stage.ended", "diagnosis.made", "rung.left",
        "rung.skipped", "remedy.applied", "lease.expired", "lock.compared", "record.written", "step.retried",
    }
)  # fmt: skip

Listener = Callable[[str, Mapping[str, Any]], None]

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class RunLog:
    """Where the events of one run go. Use it as a context manager; it binds `run_id` to every line."""

    def __init__(self, path: Path, run_id: str, redactor: Redactor, *listeners: Listener) -> None:
        self._path, self._run_id, self._redactor, self._listeners = path, run_id, redactor, listeners
        self._lock, self._file = threading.Lock(), None

    _file: TextIO | None

    def __enter__(self) -> "RunLog":
        self._file = self._path.open("a", encoding="utf-8")
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                self._clean,
                self._stamp,
                structlog.processors.JSONRenderer(default=str),
            ],
            logger_factory=lambda *_: self,
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
        )
        structlog.contextvars.bind_contextvars(run_id=self._run_id)
        return self

    def __exit__(self, *_: object) -> None:
        structlog.contextvars.clear_contextvars()
        structlog.reset_defaults()
        if self._file:
            with suppress(OSError):  # what a full disk did not take before
                self._file.close()
            self._file = None

    def _stamp(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["at"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        name = str(event["event"])
        if name in MILESTONES:
            facts = {k: v for k, v in event.items() if k not in ("event", "level", "at", "run_id")}
            for listener in self._listeners:
                try:
                    listener(name, facts)
                except Exception as e:  # noqa: BLE001 - who only hears of the work does not end it
                    log.warning("listener.failed", of=name, why=f"{type(e).__name__}: {e}")
        return event

    def _clean(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Before anybody hears of it: the file, Prefect, and the terminal."""
        return {k: self._redactor.value(str(v) if isinstance(v, Path) else v) for k, v in event.items()}

    def info(self, line: str) -> None:
        """The sink of structlog: one line to the file, whole, whichever thread it comes from."""
        with self._lock:
            if self._file:
                with suppress(OSError):  # a full disk: the record, which is the run's word, says so
                    self._file.write(line + "\n")
                    self._file.flush()

    debug = warning = error = info
