"""Starts the real SGLang by hand, without any of the product, to see what is true of it."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tasks.deadline import Deadline, pause
from tests.ports import free_port
from tests.real.build import MODELS, PYTHON, SITE

__all__ = ["ARGS", "ENV", "RealServer", "free_port", "run_engine", "serve"]

ENV = {"PYTHONPATH": str(SITE), "HF_HUB_OFFLINE": "1"}
ARGS: Mapping[str, str] = {
    "device": "cpu", "attention-backend": "torch_native", "max-total-tokens": "16384", "mem-fraction-static": "0.1",
}
READY = "The server is fired up and ready to roll!"
_READY_WITHIN_S = 180.0


def run_engine(*argv: str, within_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """One command of the real environment, run to its end."""
    return subprocess.run(
        [PYTHON, *argv], env={**os.environ, **ENV}, capture_output=True, text=True, timeout=within_s, check=False
    )


class RealServer:
    """A server process, its log, and the few requests that tell what it is."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
        self.process, self.port, self.log_path = process, port, log_path
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, trust_env=False)

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for_line(self, text: str, within_s: float = _READY_WITHIN_S) -> None:
        """Return once the log holds `text`. Raises: AssertionError when the server exits, or is too slow."""
        deadline = Deadline.after(within_s)
        while text not in self.log:
            assert not deadline.passed, f"not within {within_s} s: {text!r}; the log ends {self.log[-500:]!r}"
            assert self.process.poll() is None, f"exit {self.process.returncode}; the log ends {self.log[-500:]!r}"
            pause(0.1, deadline)

    def health(self) -> int:
        return self._http.get("/health").status_code

    def generate(self, prompt: str | list[int], **sampling: Any) -> dict[str, Any]:
        """The body of one native reply, with log-probabilities. Raises: httpx.HTTPError when the server dies of it."""
        key = "text" if isinstance(prompt, str) else "input_ids"
        asked = {key: prompt, "sampling_params": {"temperature": 0, **sampling}, "return_logprob": True}
        reply = self._http.post("/generate", json=asked)
        reply.raise_for_status()
        body: dict[str, Any] = reply.json()
        return body

    def logprobs(self, prompt: str | list[int], **sampling: Any) -> list[float | None]:
        return [token[0] for token in self.generate(prompt, **sampling)["meta_info"]["output_token_logprobs"]]

    def bench(self, output: Path) -> dict[str, Any]:
        """The one line that bench_serving writes after 32 requests. Raises: AssertionError unless it exits 0."""
        done = run_engine(
            "-m", "sglang.bench_serving", "--backend", "sglang", "--host", "127.0.0.1", "--port", str(self.port),
            "--dataset-name", "random-ids", "--random-input-len", "64", "--random-output-len", "32",
            "--random-range-ratio", "1.0", "--num-prompts", "32", "--max-concurrency", "8",
            "--output-details", "--output-file", str(output),
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        line: dict[str, Any] = json.loads(output.read_text())
        return line


@contextlib.contextmanager
def serve(
    form: str, folder: Path, *, env: Mapping[str, str] | None = None, port: int | None = None, **args: str
) -> Iterator[RealServer]:
    """A server of one checkpoint form, started and not waited for; its whole session is gone afterwards."""
    port = port or free_port()
    all_args = {**ARGS, "host": "127.0.0.1", "port": str(port), "model-path": str(MODELS / form), **args}
    log_path = folder / f"{form}-{port}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "sglang.launch_server", *(part for k, v in all_args.items() for part in (f"--{k}", v))],
            env={**os.environ, **ENV, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )
    try:
        yield RealServer(process, port, log_path)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
