"""How a TOML file becomes a frozen model, and how a mistake in one becomes a sentence instead of a traceback."""

import difflib
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from settings.sane import refuse_size, refuse_truth

__all__ = [
    "SETTINGS_DIR",
    "BadInput",
    "Declared",
    "bad_input",
    "environment_file",
    "find",
    "load",
    "nearest",
    "on_this_machine",
    "read_toml",
    "sizes_refused",
    "truths_refused",
    "validate",
    "variables",
]

M = TypeVar("M", bound=BaseModel)

SETTINGS_DIR = Path(__file__).resolve().parent


def truths_refused() -> Any:
    """For a model: true and false are no numbers, in any of its fields."""

    def refuse(cls: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
        refuse_truth(cls.model_fields[str(info.field_name)].annotation, value)
        return value

    return field_validator("*", mode="before")(classmethod(refuse))


def sizes_refused() -> Any:
    """For a model: no number in it is beyond all use."""

    def refuse(cls: type[BaseModel], value: Any, info: ValidationInfo) -> Any:  # noqa: ARG001 - pydantic's signature
        refuse_size(str(info.field_name), value)
        return value

    return field_validator("*", mode="after")(classmethod(refuse))


class BadInput(ValueError):
    """Something that a person wrote cannot be used. One sentence: file, key, problem, nearest valid value.

    Exit code 2; never shown with a traceback.
    """

    def __init__(self, file: str | Path, key: str, problem: str, nearest: str | None = None) -> None:
        self.file, self.key, self.problem, self.nearest = str(file), key, problem, nearest
        where = f"{file}: {key}" if key else str(file)
        said = f"{where}: {problem}" + (f"; did you mean '{nearest}'?" if nearest else "")
        super().__init__(said.replace("\r", "\\r").replace("\n", "\\n"))  # what is quoted may hold some


class Declared(BaseModel):
    """Base of all that is read from an operator's file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    _no_truth = truths_refused()
    _no_size = sizes_refused()


def nearest(word: str, valid: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The valid word most like `word` (difflib ratio of at least `cutoff`), or None when none is like it."""
    hits = difflib.get_close_matches(word, sorted(valid), n=1, cutoff=cutoff)
    return hits[0] if hits else None


def read_toml(path: Path) -> dict[str, Any]:
    """The parsed file. Raises: BadInput when it cannot be read or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise BadInput(path, "", f"cannot be read: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise BadInput(path, "", f"is not UTF-8 text (byte {e.start})") from e
    except tomllib.TOMLDecodeError as e:
        raise BadInput(path, "", f"is not valid TOML: {e}") from e
    except RecursionError as e:
        raise BadInput(path, "", "is nested too deeply") from e


def validate(model: type[M], values: Mapping[str, Any], file: str | Path) -> M:
    """`values` as a `model`. Raises: BadInput for the first thing that does not fit."""
    try:
        return model.model_validate(values)
    except ValidationError as e:
        raise bad_input(model, e, file) from e


def load(model: type[M], path: Path) -> M:
    """The file at `path` as a `model`. Raises: BadInput."""
    return validate(model, read_toml(path), path)


def on_this_machine(name: str) -> Path:
    """A path that a person wrote, its `~` resolved. Raises: BadInput for one that cannot be a path."""
    if "\0" in name:
        raise BadInput(repr(name), "", "cannot be a path: it holds a NUL")
    try:
        return Path(name).expanduser()
    except RuntimeError as e:
        raise BadInput(name, "", f"cannot be resolved: {e}") from e


def find(kind: str, name: str) -> Path:
    """The file behind a name in `settings/<kind>/`, or behind a path.

    Raises: BadInput that names the nearest of the shipped ones.
    """
    as_path = on_this_machine(name)
    if as_path.suffix == ".toml" or "/" in name:
        return as_path
    shipped = {p.stem: p for p in (SETTINGS_DIR / kind).glob("*.toml")}
    if name in shipped:
        return shipped[name]
    here = any(path.name == f"{name}.toml" for path in Path().glob("*.toml"))
    near = f"./{name}.toml" if here else nearest(name, shipped)
    raise BadInput(f"settings/{kind}", name, f"no such file; shipped are {', '.join(sorted(shipped))}", near)


def environment_file(prefix: str, fields: Collection[str], *, tables: Collection[str] = ()) -> Path | None:
    """The `.env` of the working directory, if there is one; `{prefix}NAME` variables in it or around us are checked.

    `tables`: fields of which `{prefix}NAME__KEY` sets a part.
    Raises: BadInput for a variable that no field reads, since it would be a setting that silently does nothing.
    """
    file = Path(".env") if Path(".env").is_file() else None
    for where, names in variables():
        for name in names:
            field, *parts = name.upper().removeprefix(prefix).lower().split("__")
            if name.upper().startswith(prefix) and (field not in fields or (parts and field not in tables)):
                hint = nearest(field, fields)
                raise BadInput(where, name, "no setting has this name", prefix + hint.upper() if hint else None)
    return file


def variables() -> tuple[tuple[str, Collection[str]], ...]:
    """Names of the variables in the `.env` of the working directory, and of those around us. Raises: BadInput."""
    try:
        in_file = dotenv_values(".env") if Path(".env").is_file() else {}
    except UnicodeDecodeError as e:
        raise BadInput(".env", "", f"is not UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise BadInput(".env", "", f"cannot be read: {e.strerror or e}") from e
    return (".env", in_file), ("environment", os.environ)


def bad_input(model: type[BaseModel], error: ValidationError, file: str | Path) -> BadInput:
    """The first complaint of pydantic as one sentence."""
    errors = error.errors(include_url=False)
    misspelt = (e for e in errors if e["type"] == "extra_forbidden")  # then the right key may be missing, too
    first = next(misspelt, errors[0])
    loc = [part for part in first["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
    key = ".".join(str(part) for part in loc)
    problem, hint = first["msg"].removeprefix("Value error, "), None
    if first["type"] == "extra_forbidden":
        problem = "unknown key"
        hint = nearest(str(loc[-1]), _fields_at(model, loc[:-1]))
    elif first["type"] in {"enum", "literal_error"}:
        expected = str(first.get("ctx", {}).get("expected", ""))
        hint = nearest(str(first["input"]), expected.replace("'", "").replace(" or ", ", ").split(", "))
        problem = f"'{first['input']!s:.80}' is none of {expected}"
    return BadInput(file, key, problem, hint)


def _fields_at(model: type[BaseModel], loc: list[int | str]) -> list[str]:
    """Names of the fields of the model that lies at `loc`, as far as annotations tell."""
    here: Any = model
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel) and str(part) in here.model_fields:
            here = here.model_fields[str(part)].annotation
        models = list(_models_in(here))
        here = models[0] if models else here
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)
