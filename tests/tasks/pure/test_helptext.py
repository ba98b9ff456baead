"""A parser read from a file is the parser that the build has, whichever of the two kinds of file it is."""

import argparse
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pure.capabilities import Flag
from tasks.pure.helptext import parser_from_actions, parser_from_help, version_in

ACTIONS = Callable[[str], list[dict[str, Any]]]


def printed(actions: list[dict[str, Any]], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What argparse itself prints for such a parser."""
    monkeypatch.setenv("COLUMNS", str(columns))
    parser = argparse.ArgumentParser(prog="server", description="-- words that look --like flags, at column 0")
    for action in actions:
        flag = parser_from_actions([action]).find(action["flags"][0])
        assert flag is not None
        if flag.dest != "help":
            about = "Words about it.\n  --like this, or {a,b} and more of them, long enough to be wrapped at some width"
            more: dict[str, Any] = {"nargs": flag.nargs, "choices": flag.choices or None} if flag.takes_value else {
                "action": "store_true",
            }
            parser.add_argument(*flag.names, dest=flag.dest, help=about, **more)
    return parser.format_help()


@pytest.mark.parametrize("columns", [60, 120, 10_000])
@pytest.mark.parametrize("release", ["0.5.9", "0.5.12.post1", "0.5.23"])
def test_help_tells_names_choices_and_values_at_any_width(
    actions: ACTIONS, monkeypatch: pytest.MonkeyPatch, release: str, columns: int
) -> None:
    told = parser_from_help(printed(actions(release), columns, monkeypatch))
    real = parser_from_actions(actions(release))
    assert set(real.flags) == set(told.flags) - ({"-h", "--help"} - set(real.flags))
    for name, flag in real.flags.items():
        there = told.find(name)
        assert there is not None
        assert (flag.names, flag.choices, flag.takes_value) == (there.names, there.choices, there.takes_value), name


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("  --tp-size TP, --tensor-parallel-size TP", Flag(("--tp-size", "--tensor-parallel-size"), "tp_size")),
        ("  -h, --help            show this", Flag(("-h", "--help"), "help", nargs=0, takes_value=False)),
        ("  --bs BS [BS ...]  sizes", Flag(("--bs",), "bs", nargs="+")),
        ("  --bs [BS ...]", Flag(("--bs",), "bs", nargs="*")),
        ("  --config [FILE]", Flag(("--config",), "config", nargs="?")),
        ("  --kv {auto,bf16}  words", Flag(("--kv",), "kv", ("auto", "bf16"))),
        ("  --a, --no-a", Flag(("--a", "--no-a"), "a", nargs=0, takes_value=False)),
    ],
)
def test_each_form_of_an_invocation(line: str, flag: Flag) -> None:
    assert flag == parser_from_help(f"usage: x\n\noptions:\n{line}\n").find(flag.names[0])


@given(st.text())
def test_text_that_is_no_help_is_refused_or_read_but_never_breaks(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parser_from_help(text).flags


WRONG: list[Any] = [
    {}, 3, None, "x", [{}], [{"flags": "--a", "dest": "a"}], ["x"], [{"flags": ["--a"]}], [{"flags": [1], "dest": "a"}],
    [{"flags": ["--a"], "dest": {}}], [{"flags": ["--a"], "dest": "a", "choices": 3}],
    [{"flags": ["--a"], "dest": "a", "choices": [[]]}], [{"flags": ["--a"], "dest": "a", "nargs": [1]}],
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_json_that_is_no_list_of_actions_is_refused(wrong: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"^(the whole is no list|action 1 (is|has) [^{\[]*)$"):
        parser_from_actions(wrong)


def test_an_action_without_a_value_is_known_by_nargs_or_by_its_kind(actions: ACTIONS) -> None:
    parser = parser_from_actions(json.loads(json.dumps(actions("0.5.23"))))
    bare = {name for name in ("--disable-cuda-graph", "--skip-server-warmup", "--monokernel-backend", "--tp-size")
            if (flag := parser.find(name)) and not flag.takes_value}
    assert {"--disable-cuda-graph", "--skip-server-warmup"} == bare


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("sglang-0.5.10.post1-args.json", "0.5.10.post1"), ("sglang-0.5.23-help.txt", "0.5.23"),
        ("0.5.24.dev12+gabc123f.json", "0.5.24.dev12+gabc123f"), ("help.txt", None), ("args-2026.json", None),
        ("help-2026.11.29.txt", None),
    ],
)
def test_the_release_in_a_file_name(name: str, version: str | None) -> None:
    assert version == version_in(name)
