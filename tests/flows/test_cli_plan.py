"""`bringup plan` and `bringup probe` as a person runs them: what is printed, how fast, and how a mistake is told."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.cli import main

ROOT = Path(__file__).resolve().parents[2]
PARSERS = ROOT / "tasks" / "rehearsal" / "site" / "sglang" / "parsers"


class Ran(NamedTuple):
    out: str
    err: str


Bringup = Callable[..., Ran]
Plan = Callable[..., dict[str, Any]]


@pytest.fixture
def bringup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bringup:
    """Runs the command line in this process (importing it costs more than most of its commands)."""

    def run(*args: str | Path, code: int = 0) -> Ran:
        monkeypatch.setattr(sys, "argv", ["bringup", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert code == ended.value.code, err
        return Ran(out, err)

    return run


@pytest.fixture
def plan(bringup: Bringup) -> Plan:
    def run(*args: str | Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(bringup("plan", "--json", *args).out)
        return found

    return run


def status(found: dict[str, Any]) -> dict[str, str]:
    return {rung["name"]: rung["status"] for rung in found["rungs"]}


def test_a_plan_from_a_file_needs_no_host(plan: Plan) -> None:
    found = plan("--args-json", PARSERS / "0.5.17.json", "--sm", "120", "--gpus", "8")
    assert {"build", "ladder", "rungs"} == set(found)
    assert ("0.5.17", 120, 8, None) == tuple(found["build"][key] for key in ("version", "sm", "gpus", "problem"))
    assert "glm5-sm120" == found["ladder"]
    assert ("planned", "doomed") == (status(found)["flashinfer-sparse-mla"], status(found)["trtllm"])


@pytest.mark.parametrize(
    ("sm", "ladder"), [(90, "glm5-sm90"), (100, "glm5-sm100"), (103, "glm5-sm100"), (121, "glm5-sm120")]
)
def test_the_gpu_chooses_the_ladder(plan: Plan, sm: int, ladder: str) -> None:
    assert ladder == plan("--args-json", PARSERS / "0.5.23.json", "--sm", str(sm))["ladder"]


def test_a_plan_from_help_is_that_from_argparse(plan: Plan, tmp_path: Path) -> None:
    lines = []
    for action in json.loads((PARSERS / "0.5.9.json").read_text()):
        value = "" if action["action"] not in ("_StoreAction", "LoRAPathAction") else " VALUE"
        value = " {" + ",".join(map(str, action["choices"])) + "}" if action.get("choices") else value
        lines.append("  " + ", ".join(flag + value for flag in action["flags"]))
    help_file = tmp_path / "sglang-0.5.9-help.txt"
    help_file.write_text("usage: server\n\noptions:\n" + "\n".join(lines) + "\n")
    from_help = plan("--help-file", help_file, "--sm", "120")
    assert plan("--args-json", PARSERS / "0.5.9.json", "--sm", "120")["rungs"] == from_help["rungs"]


def test_a_file_whose_name_tells_no_release_is_dated_by_its_flags(plan: Plan, tmp_path: Path) -> None:
    nameless = tmp_path / "args.json"
    nameless.write_bytes((PARSERS / "0.5.8.post1.json").read_bytes())
    found = plan("--args-json", nameless, "--sm", "120")
    assert ["the release is not told; its flags are those of 0.5.8 or a later one"] == found["build"]["problems"]
    assert "does not know GlmMoeDsaForCausalLM" in found["build"]["problem"]
    assert plan("--args-json", nameless, "--sm", "120", "--build", "0.5.9")["build"]["problem"] is None


def test_the_tree_is_drawn_for_the_terminal_and_as_svg(bringup: Bringup, tmp_path: Path) -> None:
    svg = tmp_path / "tree.svg"
    out = bringup("plan", "--args-json", PARSERS / "0.5.23.json", "--sm", "120", "--svg", svg).out
    assert "auto (start)" in out
    assert svg.read_text().startswith("<svg")
    assert "bf16-kv-tilelang" in svg.read_text().replace("&#x27;", "'")


def test_the_picture_is_written_beside_json_too(plan: Plan, bringup: Bringup, tmp_path: Path) -> None:
    svg = tmp_path / "tree.svg"
    assert plan("--args-json", PARSERS / "0.5.23.json", "--sm", "120", "--svg", svg)["rungs"]
    assert svg.read_text().startswith("<svg")
    bad = tmp_path / "none" / "tree.svg"
    done = bringup("plan", "--args-json", PARSERS / "0.5.23.json", "--sm", "120", "--svg", bad, code=2)
    assert f"bringup: {bad}: --svg: cannot be written: No such file or directory\n" == done.err


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": 1}', "3", '[{"flags": [{}], "dest": 1}]', '[{"dest": "x"}]', "["]
)
def test_json_that_is_no_parser_is_one_sentence_in_our_words(bringup: Bringup, tmp_path: Path, text: str) -> None:
    file = tmp_path / "args.json"
    file.write_text(text)
    done = bringup("plan", "--args-json", file, "--sm", "120", code=2)
    assert 1 == len(done.err.splitlines())
    assert "is not a list of argparse actions: " in done.err
    assert "Error" not in done.err


def test_a_plan_from_a_file_imports_no_prefect_and_takes_no_second() -> None:
    code = (
        "import sys, time; from flows.cli import app; began = time.monotonic(); "
        "app(['plan', '--json', '--sm', '120', '--args-json', sys.argv[1]], standalone_mode=False); "
        "print(time.monotonic() - began, 'prefect' in sys.modules, file=sys.stderr)"
    )
    argv = [sys.executable, "-c", code, str(PARSERS / "0.5.23.json")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    took_s, prefect = done.stderr.split()
    assert "False" == prefect
    assert float(took_s) < 1.0  # 0.2 s on an idle machine


def test_a_target_is_asked_and_its_python_and_model_stand_in_the_commands(plan: Plan) -> None:
    began = time.monotonic()
    found = plan("--target", "rehearsal", "--ladder", "glm5-sm120")
    assert time.monotonic() - began < 60
    assert ("argparse", 120, 8) == tuple(found["build"][key] for key in ("answered", "sm", "gpus"))
    argv = found["rungs"][0]["argv"]
    assert argv[0].endswith("/python")
    assert argv[argv.index("--model-path") + 1].endswith("/rehearsals/model")


def test_a_probe_is_one_json_object_or_a_page(bringup: Bringup) -> None:
    found = json.loads(bringup("probe", "--target", "rehearsal", "--json").out)
    assert {"target", "build", "host", "gpus", "model", "parser", "environment", "problems"} == set(found)
    assert "GlmMoeDsaForCausalLM" == found["model"]["architecture"]
    page = bringup("probe", "--target", "rehearsal").out
    assert "told by argparse" in page
    assert "SM120" in page


LADDER = 'start = "a"\n[rung.a]\nwhy = "x"\nargs = { %s }\non = [ { stop = "end" } ]\n'
SLIPS = [
    ('sparse-decode = "trtlm"', "args.sparse-decode: no release knows the value 'trtlm'; did you mean 'trtllm'?"),
    ("tp-sise = 8", "rung.a.args.tp-sise: no intent, and no flag of any release; did you mean 'tp-size'?"),
    ('sparse-decod = "fa3"', "did you mean 'sparse-decode'?"),
    ('api-key = "k"', "rung.a.args.api-key"),
    ('port = "http"', "args.port: 'http' is no port (1 to 65535)"),
]


@pytest.mark.parametrize(("args", "complaint"), SLIPS)
def test_a_slip_in_a_ladder_is_one_line_with_file_key_and_nearest(
    bringup: Bringup, tmp_path: Path, args: str, complaint: str
) -> None:
    ladder = tmp_path / "mine.toml"
    ladder.write_text(LADDER % args)
    done = bringup("plan", "--args-json", PARSERS / "0.5.23.json", "--sm", "120", "--ladder", ladder, code=2)
    assert "" == done.out
    assert 1 == len(done.err.splitlines())
    assert complaint in done.err


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--target", "rehearsl"], "did you mean 'rehearsal'?"),
        (["--args-json", PARSERS / "0.5.23.json", "--ladder", "glm5-sm12"], "did you mean 'glm5-sm120'?"),
        (["--args-json", "/nowhere.json", "--sm", "120"], "/nowhere.json: cannot be read: No such file or directory"),
        (["--args-json", ROOT / "pyproject.toml", "--sm", "120"], "is not a list of argparse actions"),
        (["--help-file", ROOT / "pyproject.toml", "--sm", "120"], "is not the output of --help"),
        (["--args-json", PARSERS / "0.5.23.json"], "needs a ladder, or --sm to choose one"),
        ([], "needs a host to ask, or a file"),
    ],
)
def test_a_slip_on_the_command_line_is_one_line(bringup: Bringup, args: list[str | Path], complaint: str) -> None:
    done = bringup("plan", *args, code=2)
    assert 1 == len(done.err.splitlines())
    assert complaint in done.err


@pytest.mark.parametrize("command", ["probe", "plan"])
@pytest.mark.parametrize(
    ("python", "said"),
    [("/no/such/python", "cannot be run (/no/such/python exited 127: "), ("/usr/bin/python3", "has no sglang (")],
)
def test_a_python_that_is_none_or_has_no_engine_is_said_first_and_refused(
    bringup: Bringup, tmp_path: Path, command: str, python: str, said: str
) -> None:
    target = tmp_path / "bare.toml"
    target.write_text(
        f'host = "local"\npython = "{python}"\nstate_dir = "{tmp_path}"\nmodel = "{tmp_path}"\ngpus = 1\n'
    )
    ladder = ["--ladder", "glm5-sm120"] if command == "plan" else []
    done = bringup(command, "--target", target, *ladder, code=6)
    assert done.err.startswith(f"bringup: {python} on bare {said}")
