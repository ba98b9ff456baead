"""What the probe's answers mean, as hosts really print them."""

import pytest

from settings.engine import Engine
from tasks.pure.capabilities import Gpu
from tasks.pure.helptext import parser_from_help
from tasks.pure.preflight import GpuProcess
from tasks.pure.probed import capabilities_from, host_now_from, parse_apps, parse_gpus, probe_json, probe_rows

GPUS = """\
0, NVIDIA RTX PRO 6000 Blackwell Server Edition, 12.0, 97887, 2, 580.95.05, GPU-0
1, NVIDIA H200, 9.0, 143771, [N/A], 580.95.05, GPU-1
2, Old card, [N/A], [Not Supported], 11, 470.1, GPU-2
"""
PARSER = [{"flags": ["--tp-size"], "dest": "tp_size", "action": "_StoreAction", "nargs": None, "choices": None}]


def test_a_gpu_of_which_not_all_is_told() -> None:
    assert [
        Gpu(0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, 97_887, 2, "580.95.05", "GPU-0"),
        Gpu(1, "NVIDIA H200", 90, 143_771, None, "580.95.05", "GPU-1"),
        Gpu(2, "Old card", None, None, 11, "470.1", "GPU-2"),
    ] == list(parse_gpus(GPUS))


@pytest.mark.parametrize("text", ["", "No devices were found\n", "Unable to determine the device handle for GPU 0\n"])
def test_no_gpus_are_made_up(text: str) -> None:
    assert [] == list(parse_gpus(text))


def test_processes_on_gpus_and_which_are_ours() -> None:
    gpus = list(parse_gpus(GPUS))
    found = parse_apps("71, /usr/bin/python3, 88600, GPU-0\n72, [Not Found], [N/A], GPU-9\n", {71}, gpus)
    ours, other = GpuProcess(71, "/usr/bin/python3", 88_600, 0, ours=True), GpuProcess(72, "[Not Found]", None)
    assert [ours, other] == list(found)


def test_the_lowest_gpu_decides_what_runs(engine: Engine) -> None:
    assert 90 == capabilities_from({"nvidia": {"gpus": GPUS}}, engine).sm


def test_one_failing_part_hides_no_other(engine: Engine) -> None:
    report = {
        "build": {"version": "0.5.9", "parser": PARSER, "problems": ["environment: gone"]},
        "nvidia": {"gpus": GPUS}, "problems": ["model: no folder /m on this host", "packages: broken"],
    }
    found = capabilities_from(report, engine)
    assert ("0.5.9", "argparse", 3) == (found.build.version, found.answered, len(found.gpus))
    assert ("model: no folder /m on this host", "packages: broken", "build: environment: gone") == found.problems


def test_an_empty_report_is_an_empty_answer(engine: Engine) -> None:
    found = capabilities_from({"problems": ["probe: python3 exited 127: not found"]}, engine)
    assert (None, None, None, None, ()) == (found.parser, found.answered, found.environment, found.sm, found.gpus)
    assert ("probe: python3 exited 127: not found",) == found.problems


def test_help_answers_where_argparse_does_not(engine: Engine) -> None:
    parser = parser_from_help("options:\n  --tp-size N\n")
    assert "help" == capabilities_from({}, engine, help_parser=parser).answered
    assert "argparse" == capabilities_from({"build": {"parser": PARSER}}, engine, help_parser=parser).answered


def test_a_missing_compiler_and_missing_weights_are_warned_of(engine: Engine) -> None:
    report = {
        "cuda": {"nvcc": None, "nvcc_elsewhere": ["/usr/local/cuda-13"]},
        "model": {"missing_shards": ["a.safetensors"], "architecture": "X"},
    }
    cuda, model = capabilities_from(report, engine).problems
    assert "/usr/local/cuda-13/bin has one" in cuda
    assert "1 weight files named in the index are missing, the first is a.safetensors" in model


@pytest.mark.parametrize(("ahead_s", "told"), [(2.0, []), (90.0, ["90 s ahead of"]), (-3600.0, ["3600 s behind"])])
def test_a_clock_that_is_wrong_is_warned_of(engine: Engine, ahead_s: float, told: list[str]) -> None:
    problems = capabilities_from({"clock_ahead_s": ahead_s}, engine).problems
    assert len(told) == len(problems)
    assert all(words in problem for words, problem in zip(told, problems, strict=True))


def test_the_quick_facts_before_a_launch() -> None:
    report = {
        "limits": {
            "open_files": 1024, "open_files_hard": 20_000, "shm_free_mib": 64,
            "disk_free_mib": {"/tmp": 5, "/gone": None},
        },
        "nvidia": {"gpus": GPUS, "apps": "9, python, 10, GPU-0\n", "ours": [9]},
        "problems": ["model: no folder /m on this host"],
    }
    now = host_now_from(report, port_free=False)
    assert ({"/tmp": 5}, {0: 2, 2: 11}) == (now.disk_free_mib, now.gpu_used_mib)
    assert (False, 64, 20_000, False) == (now.port_free, now.shm_free_mib, now.open_files, now.model_found)
    assert (GpuProcess(9, "python", 10, 0, True),) == now.processes


def test_the_probe_is_shown_whole(engine: Engine) -> None:
    found = capabilities_from({"build": {"parser": PARSER}, "nvidia": {"gpus": GPUS}, "problems": ["x: y"]}, engine)
    facts = probe_json(found, "t")
    assert [["--tp-size"]] == [list(flag["names"]) for flag in facts["parser"]]
    rows = dict(probe_rows(facts))
    assert ("parser", "1 flags, told by argparse") in rows["build"]
    assert [("", "x: y")] == rows["problems"]
    assert "SM120" in rows["gpus"][0][1]
