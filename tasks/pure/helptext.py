"""A build's argument parser read from a file: argparse's own actions as JSON, or what `--help` printed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.pure.capabilities import Flag, Parser

__all__ = ["parser_from_actions", "parser_from_help", "version_in"]

_VERSION = re.compile(r"(?<!\d)\d{1,2}\.\d{1,3}\.\d{1,3}(?!\d)(?:\.?(?:post|dev|rc|a|b)\d+)*(?:\+g?[0-9a-f]+)?")
_INVOCATION = re.compile(r"^  (-\S.*)$", re.MULTILINE)
# Actions that take no value; those of sglang's own begin with Deprecated and say so by nargs.
_BARE = ("StoreTrue", "StoreFalse", "StoreConst", "BooleanOptional", "AppendConst", "Count", "Help", "Action")


def parser_from_actions(actions: Any) -> Parser:
    """From dumped argparse actions: `flags, dest, action, nargs, choices, default`; absent keys are None.

    Raises: ValueError with what is wrong of which action when it is something else.
    """
    if not isinstance(actions, list):
        raise ValueError("the whole is no list")
    return Parser.of(_flag(action, n) for n, action in enumerate(actions, 1))


def parser_from_help(text: str) -> Parser:
    """From what `--help` printed at any width. Defaults are not in it; flags that argparse hides neither.

    Raises: ValueError when no flag is in the text.
    """
    flags = tuple(_flags_in(text))
    if not flags:
        raise ValueError("no flag is described in it")
    return Parser.of(flags)


def version_in(name: str) -> str | None:
    """The release that a file is named after, e.g. `sglang-0.5.17-args.json`."""
    match = _VERSION.search(name)
    return match.group() if match else None


def _flag(action: Any, n: int) -> Flag:
    if wrong := _wrong(action):
        raise ValueError(f"action {n} {wrong}")
    nargs = action.get("nargs")
    kind = str(action.get("action") or "").strip("_")
    no_value = not action.get("choices") and kind.removeprefix("Deprecated").startswith(_BARE)
    bare = nargs == 0 or (nargs is None and no_value)
    return Flag(
        names=tuple(action["flags"]),
        dest=action["dest"],
        choices=tuple(map(str, action.get("choices") or ())),
        default=action.get("default"),
        nargs=nargs,
        takes_value=not bare,
    )


def _wrong(action: Any) -> str | None:
    """Why this is no argparse action."""
    if not isinstance(action, Mapping):
        return "is no object"
    names, choices = action.get("flags"), action.get("choices")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return "has no list of texts as `flags`"
    if not isinstance(action.get("dest"), str):
        return "has no text as `dest`"
    if not isinstance(action.get("nargs"), int | str | None):
        return "has an `nargs` that is neither number nor text"
    if choices is not None and not (
        isinstance(choices, list) and all(isinstance(c, str | int | float | None) for c in choices)
    ):
        return "has `choices` that are no list of plain values"
    return None


def _flags_in(text: str) -> Iterator[Flag]:
    """Lines indented by two are invocations: `--a A, --b A  help`, with the help behind two spaces or below."""
    for match in _INVOCATION.finditer(text):
        invocation = match.group(1).split("  ")[0]
        parts = re.split(r", (?=-)", invocation)
        names = tuple(part.split(" ", 1)[0] for part in parts)
        _, _, value = parts[-1].partition(" ")
        long = next((name for name in names if name.startswith("--")), names[0])
        yield Flag(
            names=names,
            dest=long.lstrip("-").replace("-", "_"),
            choices=_choices(value),
            nargs=_nargs(value),
            takes_value=bool(value),
        )


def _choices(value: str) -> tuple[str, ...]:
    match = re.search(r"\{([^}]*)\}", value)
    return tuple(match.group(1).split(",")) if match else ()


def _nargs(value: str) -> int | str | None:
    if not value:
        return 0
    if value.endswith("...]"):
        return "*" if value.startswith("[") else "+"
    return "?" if value.startswith("[") else None
