"""Weighs causes as they come: which is the first that the server ended of, and which came of nothing."""

import re
from collections.abc import Callable
from dataclasses import replace

from settings.catalogue import Grade
from settings.words import Component, Phase
from tasks.pure.diagnose.reading import Cause
from tasks.pure.diagnose.rules import action_of, cure_named

__all__ = ["Verdict"]

_SAME_EVENT = 80       # lines within which an exact text may follow a general one
_RIGHT_BELOW = 12      # lines under an exception's own that still belong to its message
_SIGNS_OF_LIFE = 3     # batch lines after which a reported error was none
_PROOF_OF_LIFE = 30    # batch lines after which even a fatal text was only quoted
_SETTLED_AFTER = 5_000 # lines after a death, beyond which nothing can change the cause
_MOST_PENDING = 64
_CURE_WITHIN = 6       # lines

# Kinds whose first line tells not where.
_NOTICED_LATER = {"cuda_fault", "device_assert", "jit_compile", "no_kernel_image"}
# Of which kinds an exact text tells what a general one of this kind was about, and not what came of it.
_EXPLAINED_BY = {
    "device_assert": {"device_assert", "nan", "no_kernel_image"},
    "cuda_fault": {"cuda_fault", "device_assert", "nan", "gpu_fault", "no_kernel_image"},
    "jit_compile": {"jit_compile", "no_kernel_image", "unsupported"},
    "nccl": {"nccl", "cuda_fault", "gpu_fault"},
    "version_mismatch": {"version_mismatch", "gpu_fault"},
    "unsupported": {"unsupported", "jit_compile", "no_kernel_image", "cuda_fault"},
}
_BEAT = re.compile(r"last_heartbeat time: ([\d:.]+)")


class Verdict:
    """The state of the case. `note` takes what was seen and came of nothing."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.certain: Cause | None = None
        self.death: Cause | None = None
        self.aftermath: Cause | None = None
        self.pending: list[Cause] = []
        self.stalled: list[Cause] = []
        self.cure: tuple[str | None, str | None] = (None, None)
        self._beat: str | None = None
        self._life = 0  # batch lines since the first cause that is not certain to be one

    @property
    def doubtful(self) -> bool:
        """A fatal text has been read, yet nothing has died of it so far."""
        return self.certain is not None and self.certain.reading.grade == "fatal" and self.death is None

    @property
    def has_no_port(self) -> bool:
        """The HTTP server could not listen: the engine lives on, and nobody can reach it."""
        certain = self.certain
        return certain is not None and (certain.reading.kind, certain.reading.component) == ("port", Component.HOST)

    @property
    def waits(self) -> bool:
        """Batch lines have to be counted, since something may have come of nothing."""
        return bool(self.pending or self.stalled) or self.doubtful

    def settled(self, line: int) -> bool:
        """Whether nothing from this line on can change the cause."""
        if self.certain is None or self.death is None:
            return False
        return line > max(self.certain.line, self.death.line) + _SETTLED_AFTER

    def weigh(self, cause: Cause) -> None:
        """Take the next cause, in the order of the log."""
        grade = cause.reading.grade
        self._end_of_stall(grade)
        if self.certain is not None:
            self._refine(cause)
        elif grade == "aftermath":
            self.aftermath = self.aftermath or cause
        elif grade == "stall":
            self._stall(cause)
        elif grade == "reported" and self.death is None:
            self._life = self._life if self.pending else 0
            self.pending += [cause] if len(self.pending) < _MOST_PENDING else []
        else:
            self.pending.append(cause)
            self._life = 0
            self.confirm()

    def die(self, death: Cause) -> None:
        """Something ended of a failure: what was reported until now was no empty word."""
        self._end_of_stall("fatal")
        self.death = self.death or death
        self.confirm()

    def confirm(self) -> None:
        """What was pending was the end: the first of it is the cause, unless that is general and another exact."""
        pending, self.pending = self.pending, []
        for cause in pending:
            if self.certain is None:
                self._settle_on(cause)
            else:
                self._refine(cause)

    def live(self, batches: int) -> None:
        """So many batch lines passed."""
        self.stalled, self._beat = [], None
        self._life += batches
        if self._life >= _SIGNS_OF_LIFE and self.death is None:
            self._drop(self.pending)
            self.pending = []
        if self._life >= _PROOF_OF_LIFE:
            self.doubt()

    def doubt(self) -> None:
        """The server serves on: a fatal text that nothing died of was only quoted."""
        if self.doubtful and self.certain is not None:
            self._drop([self.certain])
            self.certain, self.cure = None, (None, None)

    def move_on(self, keep: Callable[[Cause], bool]) -> None:
        """The engine came to another phase; only what `keep` says is still pending."""
        self.stalled = []
        if self.death is None:
            self.pending = [c for c in self.pending if keep(c)]
            if self.aftermath is not None and not keep(self.aftermath):
                self.aftermath = None

    def look_for_cure(self, text: str, line: int) -> None:
        """A flag that the log names near the cause."""
        near = self.certain is None or line <= self.certain.line + _CURE_WITHIN
        if near and self.cure == (None, None):
            self.cure = cure_named(text)

    def place(self, component: Component, frame: str | None) -> None:
        """Where the certain cause happened, learned from lines below it."""
        first = self.certain
        if first is not None:
            reading = first.reading.at(component, action_of(first.reading, component, first.text))
            self.certain = replace(first, reading=reading, frame=first.frame or frame)

    def first_of_pending(self) -> Cause | None:
        """The cause, were the log to end here."""
        if not self.pending:
            return None
        first = self.pending[0]
        return next((c for c in self.pending[1:] if _explains(c, first)), first)

    def _settle_on(self, cause: Cause) -> None:
        self.certain = cause
        if self.cure == (None, None):
            self.cure = cure_named(cause.text)

    def _refine(self, cause: Cause) -> None:
        first = self.certain
        if first is None:
            return
        named = cause.reading.component
        if (
            first.reading.kind in _NOTICED_LATER and first.reading.by_frame
            and first.reading.component is Component.UNKNOWN
            and cause.reading.by_frame and named not in {Component.UNKNOWN, Component.GRAPH}
            and cause.line - first.line <= _SAME_EVENT
            and (cause.reading.kind == first.reading.kind or cause.reading.general)
        ):  # fmt: skip
            self.place(named, cause.frame)
        if _explains(cause, first):
            self._settle_on(cause)

    def _stall(self, cause: Cause) -> None:
        beat = _BEAT.search(cause.text)
        if beat and self._beat not in {None, beat[1]}:
            self.stalled = []
        self._beat = beat[1] if beat else self._beat
        self.stalled = [*self.stalled[:2], cause]

    def _end_of_stall(self, grade: Grade) -> None:
        """A server that had stopped answering long before it ended: what is said at its end came of that."""
        serving = bool(self.stalled) and self.stalled[0].phase in {Phase.PREFILL, Phase.DECODE}
        if grade != "stall" and self.certain is None and len(self.stalled) > 2 and serving:
            self._settle_on(self.stalled[0])

    def _drop(self, causes: list[Cause]) -> None:
        for cause in causes:
            self._note(f"line {cause.line}: {cause.text[:160]}")


def _explains(exact: Cause, general: Cause) -> bool:
    """Whether an exact text tells what a general one before it was about."""
    if _refused_by_argparse(exact, general):
        return True
    if not general.reading.general or exact.reading.general:
        return False
    if exact.reading.grade not in {"fatal", "reported", "lives"}:
        return False
    below = exact.line - general.line
    if below <= _RIGHT_BELOW and general.raised and not exact.raised:
        return exact.reading.kind not in {"unknown", "hang", "nccl"}  # the exception's message goes on below its line
    near = below <= _SAME_EVENT or (exact.chain == general.chain and general.chain > 0)
    return near and exact.reading.kind in _EXPLAINED_BY.get(general.reading.kind, {general.reading.kind})


def _refused_by_argparse(refusal: Cause, raised: Cause) -> bool:
    """Whether argparse tells, below an argument's own exception, which argument it was."""
    told = refusal.reading.kind == "bad_flag" and ": error: argument " in refusal.text
    converting = raised.raised and raised.reading.kind in {"model_files", "unsupported", "bad_flag", "unknown"}
    return told and converting and raised.phase is Phase.ARGS and refusal.line - raised.line <= _SAME_EVENT
