"""The accuracy gate: `sgl-eval` on the host against the server there, and the last good score, kept on the host."""

import hashlib
import posixpath
import re
import secrets
from dataclasses import dataclass

from pydantic import ValidationError

from settings.accuracy import AccuracyGate
from settings.target import resolve_path
from settings.words import AttemptOutcome, Stage
from tasks.deadline import Deadline
from tasks.faults import StageReport, Step, doomed, gone, settled
from tasks.host import DeadlinePassed, Host
from tasks.pure import cause
from tasks.pure.accuracy import Questions, judge_accuracy, read_metrics
from tasks.pure.record import AccuracyResult
from tasks.runlog import log
from tasks.session import Server, Session

__all__ = ["Evaluation", "accuracy", "evaluate"]

# The package has no __main__; its console script lies beside an interpreter that may be reached by a link.
_MAIN = "import sys; from sgl_eval.cli import main; sys.exit(main())"
_METRICS = re.compile(r"^Metrics: (\S.*)$", re.M)
_ANSWERS = "output-rs0.jsonl"  # beside the metrics; one file a repeat, and there is one repeat
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The score, or why there is none, and all that sgl-eval printed and wrote."""

    found: AccuracyResult | str
    printed: str = ""
    metrics: bytes = b""
    answers: bytes = b""


def accuracy(session: Session, server: Server) -> StageReport:
    """Whether the answers are right often enough. A gate that could not be measured does not pass for measured."""
    step = Step(Stage.ACCURACY, server.n, server.rung)
    assert session.accuracy is not None, "a ladder that names the gate loads it"
    gate, questions = session.accuracy
    ran = evaluate(
        session.host, gate, questions, python=gate.python or session.target.python, port=server.plan.port,
        folder=f"{session.supervisor.state_dir}/accuracy", deadline=session.deadline,
    )  # fmt: skip
    found, kept = ran.found, session.folder
    name = f"{server.n:02d}"
    printed = kept.write_raw(f"{name}.out", ran.printed.encode("utf-8", "replace"), under="accuracy")
    pulse = settled(session, server, suspicious=isinstance(found, str))
    if not pulse.alive:
        return gone(step, session, server, pulse)
    if pulse.fatal:
        return doomed(step, session, server)
    if isinstance(found, str):
        diagnosis = cause.unmeasured(
            "bench_client", f"sgl-eval: {found}; all that it printed: {printed.path}", stage=Stage.ACCURACY
        )
        return step.failed(diagnosis, outcome=AttemptOutcome.PASSED)
    mark = _mark(session, gate)
    said = judge_accuracy(found, _remembered(session.host, mark, session.call()))
    files = {
        "metrics": kept.write_raw(f"{name}-metrics.json", ran.metrics, under="accuracy"),
        "answers": kept.write_raw(f"{name}.jsonl", ran.answers, under="accuracy") if ran.answers else None,
    }
    found = found.model_copy(update={"said": said.why, **files})
    log.info("accuracy.measured", **found.model_dump(include={"benchmark", "right", "questions", "low", "high"}))
    if said.kind:
        return step.failed(cause.inaccurate(f"{gate.benchmark}: {said.why}"), accuracy=found)
    session.host.put(found.model_dump_json().encode(), mark, deadline=session.call())
    return step.passed(said.why, accuracy=found)


def evaluate(
    host: Host, gate: AccuracyGate, questions: Questions, *, python: str, port: int, folder: str, deadline: Deadline
) -> Evaluation:
    """One run of sgl-eval. Raises: HostError, also when `deadline` itself has passed."""
    here = resolve_path(folder, host.home)
    data, out = f"{here}/questions-{questions.sha256[:16]}.jsonl", f"{here}/run-{secrets.token_hex(4)}"
    host.put(questions.jsonl, data, deadline=deadline)
    argv = [
        python, "-c", _MAIN, "run", gate.benchmark, "--base-url", f"http://127.0.0.1:{port}/v1", "--from-dataset", data,
        "--out-dir", out, "--max-tokens", str(gate.max_tokens), "--temperature", str(gate.temperature),
        "--num-threads", str(gate.threads), "--n-repeats", "1",
    ]  # fmt: skip
    if gate.thinking is not None:
        argv.append("--thinking" if gate.thinking else "--no-thinking")
    try:
        ended = host.run(tuple(argv), deadline=deadline.sooner(gate.wall_s))
    except DeadlinePassed:
        if deadline.passed:
            raise
        return Evaluation(f"had not ended after {gate.wall_s:g} s and was stopped")
    written = _METRICS.search(ended.out)
    printed = f"{ended.out}\n{ended.err}"
    if ended.exited != 0 or written is None:
        last = next((x for x in reversed(printed.splitlines()) if x.strip()), "")
        return Evaluation(f"ended with {ended.exited} and wrote no metrics: {last.strip()[:200]}", printed)
    path = written[1].strip()
    metrics = host.read(path, 0, _LARGEST, deadline=deadline).data
    answers = host.read(posixpath.join(posixpath.dirname(path), _ANSWERS), 0, _LARGEST, deadline=deadline).data
    return Evaluation(read_metrics(metrics, gate, questions), printed, metrics, answers)


def _remembered(host: Host, mark: str, deadline: Deadline) -> AccuracyResult | None:
    raw = host.read(mark, 0, _LARGEST, deadline=deadline).data
    try:
        return AccuracyResult.model_validate_json(raw) if raw else None
    except ValidationError:
        return None  # written by another release of ours


def _mark(session: Session, gate: AccuracyGate) -> str:
    """Where the host keeps the last good score of this benchmark and model."""
    name = hashlib.sha256(f"{gate.benchmark} {session.target.model}".encode()).hexdigest()[:16]
    return f"{session.supervisor.state_dir}/accuracy/last-good-{name}.json"
