"""The release's own arguments: its parser, built from recorded facts, and what it makes of them on SM120 for GLM-5."""

import argparse
import functools
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


class _DeprecatedAction(argparse.Action):
    """Accepted, warned about, and without effect or as its newer name says."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(f"\x1b[1;33m'{option_string}' is deprecated and will be removed in a future release.\x1b[0m", file=sys.stderr)
        if self.const is not None:
            values = self.const
        if self.nargs != 0 or self.const is not None:
            setattr(namespace, self.dest, values)


class _LoRAPathAction(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)


def _add(parser: argparse.ArgumentParser, fact: dict[str, Any]) -> None:
    kind, flags = fact["action"], fact["flags"]
    default = argparse.SUPPRESS if fact.get("default") == argparse.SUPPRESS else fact.get("default")
    more: dict[str, Any] = {"dest": fact["dest"], "default": default}
    if kind == "_StoreTrueAction":
        parser.add_argument(*flags, action="store_true", **more)
        return
    if kind == "BooleanOptionalAction":
        parser.add_argument(*(f for f in flags if not f.startswith("--no-")), action=argparse.BooleanOptionalAction, **more)
        return
    if kind in ("DeprecatedStoreTrueAction", "DeprecatedAction"):
        const = True if kind == "DeprecatedStoreTrueAction" else None
        parser.add_argument(*flags, action=_DeprecatedAction, nargs=0, const=const, **more)
        return
    if kind == "DeprecatedStoreConstAction" and "choices" not in fact:
        parser.add_argument(*flags, action=_DeprecatedAction, nargs=0, const=_const_of(flags[0]), **more)
        return
    for key in ("nargs", "choices", "required"):
        if key in fact:
            more[key] = fact[key]
    if "type" in fact:
        more["type"] = _TYPES[fact["type"]]
    action: Any = {"DeprecatedAliasStoreAction": _DeprecatedAction, "LoRAPathAction": _LoRAPathAction}.get(kind, "store")
    parser.add_argument(*flags, action=action, **more)


def _const_of(flag: str) -> str:
    for word, backend in (("breakable", "breakable"), ("disable", "disabled"), ("enforce", "tc_piecewise")):
        if word in flag:
            return backend
    raise SystemExit(f"rehearsal: no constant known for {flag}")


def _human_readable_int(text: str) -> int:
    scale = {"k": 1000, "m": 1000**2, "g": 1000**3}.get(text[-1:].lower())
    if scale is None:
        return int(text)
    return int(float(text[:-1]) * scale)


def _json_list(text: str) -> Any:
    return json.loads(text)


def _nullable_str(text: str) -> str | None:
    return None if text in ("", "None") else text


_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "loads": functools.wraps(json.loads)(lambda text: json.loads(text)),
    "json_list_type": _json_list,
    "nullable_str": _nullable_str,
    "human_readable_int": _human_readable_int,
    "parse_cuda_graph_config_arg": json.loads,
    "parse_cuda_graph_backend_arg": str,
}
