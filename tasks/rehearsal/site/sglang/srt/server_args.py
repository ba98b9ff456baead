"""The release's own arguments: its parser, built from recorded facts, and what it makes of them on SM120 for GLM-5."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglang._story import STORY

__all__ = ["ServerArgs", "parse"]

_PARSERS = Path(__file__).resolve().parent.parent / "parsers"
# Before `sglang serve` existed, the module's file name stood before `error:`.
_OLD_PROG = ("0.5.8.post1", "0.5.9")


class ServerArgs:
    """Here for the one class method by which everybody asks a build for its flags."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Add the release's flags: names, choices, defaults, nargs and types as recorded from the real parser."""
        facts = json.loads((_PARSERS / f"{STORY.release}.json").read_text(encoding="utf-8"))
        for fact in facts:
            if fact["action"] != "_HelpAction":
                _add(parser, fact)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parsed arguments. Exits with 2 where the real one does, the whole usage first and the reason last."""
    parser = argparse.ArgumentParser(prog="launch_server.py" if STORY.release in _OLD_PROG else "sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser.parse_args(argv)


class _Warned(argparse.Action):
    """Accepted, warned about, and without effect or with that of its newer name."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        del parser
        warning = f"'{option_string}' is deprecated and will be removed in a future release."
        print(f"\x1b[1;33m{warning}\x1b[0m", file=sys.stderr)
        if self.nargs != 0 or self.const is not None:
            setattr(namespace, self.dest, values if self.const is None else self.const)


class DeprecatedAction(_Warned):
    """The names of these classes are the real ones: whoever asks a build for its actions sees them."""


class DeprecatedStoreTrueAction(_Warned):
    pass


class DeprecatedStoreConstAction(_Warned):
    pass


class DeprecatedAliasStoreAction(_Warned):
    pass


class LoRAPathAction(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        del parser, option_string
        setattr(namespace, self.dest, values)


def _add(parser: argparse.ArgumentParser, fact: dict[str, Any]) -> None:
    kind, flags = fact["action"], fact["flags"]
    more: dict[str, Any] = {"dest": fact["dest"], "default": fact.get("default")}
    if fact.get("hidden"):  # taken, and not shown in the usage
        more["help"] = argparse.SUPPRESS
    if kind == "_StoreTrueAction":
        parser.add_argument(*flags, action="store_true", **more)
    elif kind == "BooleanOptionalAction":
        flags = [flag for flag in flags if not flag.startswith("--no-")]
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **more)
    elif kind in _BARE and "choices" not in fact:
        parser.add_argument(*flags, action=_BARE[kind], nargs=0, const=_const_of(kind, flags[0]), **more)
    else:
        more |= {key: fact[key] for key in ("nargs", "choices", "required") if key in fact}
        if "type" in fact:
            more["type"] = _TYPES[fact["type"]]
        parser.add_argument(*flags, action=_VALUED.get(kind, "store"), **more)


_BARE = {
    "DeprecatedAction": DeprecatedAction,
    "DeprecatedStoreTrueAction": DeprecatedStoreTrueAction,
    "DeprecatedStoreConstAction": DeprecatedStoreConstAction,
}
_VALUED: dict[str, Any] = {
    "DeprecatedStoreConstAction": DeprecatedStoreConstAction,
    "DeprecatedAliasStoreAction": DeprecatedAliasStoreAction,
    "LoRAPathAction": LoRAPathAction,
}


def _const_of(kind: str, flag: str) -> str | bool | None:
    """What a bare flag stores; the recorded facts do not hold it."""
    if kind != "DeprecatedStoreConstAction":
        return True if kind == "DeprecatedStoreTrueAction" else None
    for word, backend in (("breakable", "breakable"), ("disable", "disabled"), ("enforce", "tc_piecewise")):
        if word in flag:
            return backend
    raise SystemExit(f"rehearsal: no constant known for {flag}")


def _human_readable_int(text: str) -> int:
    scale = {"k": 1000, "m": 1000**2, "g": 1000**3}.get(text[-1:].lower())
    if scale is None:
        return int(text)
    return int(float(text[:-1]) * scale)


def _nullable_str(text: str) -> str | None:
    return None if text in ("", "None") else text


_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "loads": json.loads,
    "json_list_type": json.loads,
    "nullable_str": _nullable_str,
    "human_readable_int": _human_readable_int,
    "parse_cuda_graph_config_arg": json.loads,
    "parse_cuda_graph_backend_arg": str,
}
