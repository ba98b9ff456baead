"""The accuracy gate: which questions a rung must answer, and how well. A server can be fast, finite and wrong."""

from pydantic import Field

from settings.source import BadInput, Declared, find, load, on_this_machine

__all__ = ["AccuracyGate", "load_accuracy_gate"]


class AccuracyGate(Declared):
    """A run of `sgl-eval` on the host, from a local copy of the questions: nothing is downloaded there."""

    why: str = Field(min_length=1, description="what this gate is for")
    benchmark: str = Field("gsm8k", pattern=r"^[a-z0-9_]+$", description="name that `sgl-eval list` shows")
    dataset: str = Field(
        description="JSON lines on this machine: {problem, expected_answer} or GSM8K's own {question, answer}"
    )
    floor: float = Field(ge=0, le=1, description="share of right answers; failed when its 95 % interval lies below")
    questions: int | None = Field(None, ge=1, description="only the first so many")
    max_tokens: int = Field(2048, ge=1, description="tokens of an answer")
    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    thinking: bool | None = Field(None, description="the chat template's thinking; absent = the benchmark's default")
    threads: int = Field(32, ge=1, description="requests at once")
    python: str | None = Field(None, description="interpreter on the host that has sgl-eval; absent = the target's")
    wall_s: float = Field(3600, gt=0, description="seconds that the whole run may take")


def load_accuracy_gate(name: str) -> tuple[AccuracyGate, bytes]:
    """The gate called `name` in settings/suites/accuracy/, or at that path, and its questions. Raises: BadInput."""
    path = find("suites/accuracy", name)
    gate = load(AccuracyGate, path)
    data = path.parent / on_this_machine(gate.dataset)
    try:
        return gate, data.read_bytes()
    except OSError as e:
        raise BadInput(path, "dataset", f"'{data}' cannot be read: {e.strerror}; put a local copy there") from e
