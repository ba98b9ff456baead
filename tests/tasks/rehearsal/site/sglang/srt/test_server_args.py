"""The stand-in's parser against the recorded facts of each release, and against what the real one printed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from settings.source import SETTINGS_DIR

ROOT = SETTINGS_DIR.parent
PARSERS = ROOT / "tasks" / "rehearsal" / "site" / "sglang" / "parsers"
REAL = ROOT / "tests" / "corpus" / "real"
RELEASES = ("0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.17", "0.5.23")

DUMP = """
import argparse, json, sglang
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(json.dumps({"version": sglang.__version__, "actions": [
    {"flags": a.option_strings, "dest": a.dest, "action": type(a).__name__, "nargs": a.nargs,
     "choices": a.choices, "default": a.default, "required": a.required} for a in parser._actions]}))
"""
TRY = """
import argparse, json
from sglang.srt.server_args import ServerArgs
class Parser(argparse.ArgumentParser):
    def error(self, message):  # without the usage, which takes long to format
        raise SystemExit(2)
parser = Parser()
ServerArgs.add_cli_args(parser)
def code(argv):
    try:
        parser.parse_args(["--model-path", "m", *argv])
    except SystemExit as e:
        return e.code
    return 0
print(json.dumps([code(argv) for argv in TRIES]))
"""


def facts(release: str) -> list[dict[str, Any]]:
    return list(json.loads((PARSERS / f"{release}.json").read_text(encoding="utf-8")))


@pytest.fixture
def dump(machine: Any, request: pytest.FixtureRequest) -> Any:
    return json.loads(machine(f'release = "{request.param}"\nspeed = 1.0\n').python("-c", DUMP).stdout)


@pytest.mark.parametrize(("dump", "release"), [(r, r) for r in RELEASES], indirect=["dump"])
def test_a_build_asked_for_its_flags_answers_with_the_facts_of_its_release(dump: Any, release: str) -> None:
    assert release == dump["version"]
    expected, actual = facts(release), dump["actions"]
    assert [f["flags"] for f in expected] == [a["flags"] for a in actual]
    for fact, action in zip(expected[1:], actual[1:], strict=True):
        wanted = {
            "dest": fact["dest"], "action": fact["action"], "choices": fact.get("choices"),
            "default": fact.get("default"), "required": fact.get("required", False),
        }
        shown = {key: action[key] for key in wanted}
        assert wanted == shown, fact["flags"]
        assert fact.get("nargs") == (action["nargs"] or None), fact["flags"]


@pytest.mark.parametrize("release", RELEASES)
def test_each_listed_choice_is_taken_and_any_other_refused(machine: Any, tmp_path: Path, release: str) -> None:
    chosen = [f for f in facts(release) if "choices" in f]
    good = [[f["flags"][0], str(choice)] for f in chosen for choice in f["choices"]]
    bad = [[f["flags"][0], "no-such-choice"] for f in chosen]
    script = tmp_path / "tries.py"
    script.write_text(TRY.replace("TRIES", repr(good + bad)), encoding="utf-8")
    codes = json.loads(machine(f'release = "{release}"\nspeed = 1.0\n').python(str(script)).stdout)
    assert [0] * len(good) + [2] * len(bad) == codes


@pytest.mark.parametrize(
    ("log", "argv"),
    [
        ("cpu-0.5.23-ambiguous", "--cuda-graph-max-bs 8"),
        ("cpu-0.5.23-invalid-choice", "--attention-backend flashmla_kv"),
        ("cpu-0.5.23-unrecognized", "--nsa-decode-backend trtllm"),
    ],
)
def test_a_refusal_reads_as_the_real_one_from_first_to_last_line(machine: Any, log: str, argv: str) -> None:
    real = (REAL / f"{log}.log").read_text(encoding="utf-8")
    done = machine('release = "0.5.23"\nspeed = 1.0\n').python(
        "-m", "sglang.launch_server", "--model-path", "m", *shlex.split(argv)
    )
    assert 2 == done.returncode
    assert "" == done.stdout
    assert comparable(real) == comparable(done.stderr)


def comparable(text: str) -> str:
    """Without the folder of the installation, and the one set of choices that Python orders anew in each process."""
    text = re.sub(r"/\S+/sglang/", "", text)
    return re.sub(r"--sampling-backend \{[^}]*\}", "--sampling-backend {…}", text)


@pytest.mark.parametrize(("release", "prog"), [("0.5.9", "launch_server.py"), ("0.5.10.post1", "sglang serve")])
def test_the_program_is_called_as_its_release_calls_it(machine: Any, release: str, prog: str) -> None:
    done = machine(f'release = "{release}"\nspeed = 1.0\n').python("-m", "sglang.launch_server", "--no-such-flag")
    assert done.stderr.splitlines()[-1].startswith(f"{prog}: error: ")
