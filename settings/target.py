"""Where a run happens: one host, its Python, its model (contracts §5). TOML, then BRINGUP_… variables, then flags."""

import os
from contextvars import ContextVar
from typing import Any

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from settings.sane import check_env
from settings.source import BadInput, bad_input, environment_file, find, read_toml, sizes_refused, truths_refused

__all__ = ["PREFIX", "TABLES", "Target", "load_target", "resolve_path"]

PREFIX, TABLES = "BRINGUP_TARGET__", ("env",)
_LONGEST_NAME = 64

# What the file holds, while `load_target` makes a Target of it: pydantic-settings takes sources, not layers.
_FILE: ContextVar[dict[str, Any] | None] = ContextVar("file", default=None)


class Target(BaseSettings):
    """A host that serves. Every field can come from `BRINGUP_TARGET__<FIELD>`."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__", env_file=None,
        protected_namespaces=(), allow_inf_nan=False,
    )

    _no_truth = truths_refused()
    _no_size = sizes_refused()

    name: str = Field(description="how people call this host; stands in records and run names", min_length=1)
    host: str = Field("local", min_length=1, description='"local", or an ssh alias or address')
    port: int | None = Field(None, ge=1, le=65_535, description="SSH port; None = ssh_config or 22")
    user: str | None = Field(None, description="SSH user; None = ssh_config or the current one")
    identity_file: str | None = Field(None, description="private key on this machine; None = ssh_config or agent")
    known_hosts_file: str | None = Field(None, description="trusted host keys; None = ssh_config or ~/.ssh/known_hosts")
    ssh_config: str | None = Field(None, description="ssh_config file on this machine; None = ~/.ssh/config")
    python: str = Field("python3", min_length=1, description="the engine's Python there, e.g. ~/ml-env/bin/python3")
    env: dict[str, SecretStr] = Field({}, description="environment of all that runs on the host; values never shown")
    state_dir: str = Field("~/.glm5-bringup", min_length=1, description="folder there for the supervisor (mode 0700)")
    model: str = Field(min_length=1, description="model path on the host, or hub id")
    gpus: int = Field(0, ge=0, le=1024, description="GPUs that a run takes; 0 = none (CPU)")
    api_port: int | None = Field(None, ge=1, le=65_535, description="the server's port, where the ladder sets none")
    recipe: str | None = Field(None, description="how builds get there: name in settings/recipes/, or a path")
    lease_s: float = Field(90.0, ge=1, le=604_800, description="seconds a server outlives its orchestrator")

    @field_validator("name")
    @classmethod
    def _name_is_a_file_name(cls, value: str) -> str:
        if "/" in value or value.startswith(".") or len(value) > _LONGEST_NAME:
            raise ValueError(f"'{value:.80}' is used in file names: no '/', no leading '.', {_LONGEST_NAME} at most")
        return value

    @field_validator(
        "name", "host", "user", "identity_file", "known_hosts_file", "ssh_config", "python", "state_dir", "model",
        "recipe",
    )
    @classmethod
    def _is_one_plain_line(cls, value: str | None) -> str | None:
        if value is not None and (not value.isprintable() or value != value.strip()):
            raise ValueError(f"{value!r} has a blank at an end, a newline or another character that cannot be seen")
        return value

    @field_validator("host")
    @classmethod
    def _host_is_a_word(cls, value: str) -> str:
        if " " in value or value.startswith("-"):
            raise ValueError(f"'{value}' is no alias and no address")
        return value

    @field_validator("state_dir", "python", "model")
    @classmethod
    def _holds_from_any_folder(cls, value: str, info: ValidationInfo) -> str:
        home = value in ("~", "$HOME") or value.startswith(("~/", "$HOME/"))
        relative = not home and not value.startswith("/")
        by_name = info.field_name == "python" and "/" not in value  # looked for on the PATH
        hub_id = info.field_name == "model" and not value.startswith(".")
        if relative and not (by_name or hub_id):
            raise ValueError(f"'{value}' depends on the folder it is read in: begin it with '/', '~/' or '$HOME/'")
        if info.field_name == "state_dir" and value.strip("/") in ("", "~", "$HOME"):
            raise ValueError(f"'{value}' is not a folder of our own, and would be made mode 0700")
        return value

    @field_validator("env")
    @classmethod
    def _env_can_be_set(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_env({name: text.get_secret_value() for name, text in value.items()})
        return value

    @property
    def is_local(self) -> bool:
        return self.host == "local"

    def plain_env(self) -> dict[str, str]:
        """The environment with its secrets readable, for the one place that hands it to the host."""
        return {name: value.get_secret_value() for name, value in self.env.items()}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings names the arguments
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags (which arrive as init values) win over the environment, that over `.env`, and that over the file."""
        file = InitSettingsSource(settings_cls, init_kwargs=_FILE.get() or {})
        return init_settings, _TrueNames(settings_cls, env_settings), _TrueNames(settings_cls, dotenv_settings), file


class _TrueNames(PydanticBaseSettingsSource):
    """Gives the keys of `env` their case back: pydantic-settings reads BRINGUP_TARGET__ENV__PATH as `path`."""

    def __init__(self, settings_cls: type[BaseSettings], source: PydanticBaseSettingsSource) -> None:
        super().__init__(settings_cls)
        self._source = source

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._source.get_field_value(field, field_name)

    def __call__(self) -> dict[str, Any]:
        self._source._set_current_state(self.current_state)
        found = {name: value for name, value in self._source().items() if name in self.settings_cls.model_fields}
        if isinstance(found.get("env"), dict):
            found["env"] = {_true_name(name): value for name, value in found["env"].items()}
        return found


def _true_name(name: str) -> str:
    """The variable's name as it stands in our environment; in `.env` files upper case is taken for granted."""
    prefix = "BRINGUP_TARGET__ENV__"
    mine = (n[len(prefix) :] for n in os.environ if n.upper().startswith(prefix))
    return next((n for n in mine if n.lower() == name.lower()), name.upper())


def load_target(name: str, **flags: Any) -> Target:
    """The target called `name` in settings/targets/, or at that path; `flags` win over everything else.

    `{here}` in a value is the folder of the file, so that a local target can name files beside it.
    Raises: BadInput.
    """
    path = find("targets", name)
    values = _here(read_toml(path), str(path.resolve().parent))
    values.setdefault("name", path.stem)
    token = _FILE.set(values)
    try:
        dotenv = environment_file(PREFIX, Target.model_fields, tables=TABLES)
        given = {field: value for field, value in flags.items() if value is not None}
        return Target(**given, _env_file=dotenv)
    except ValidationError as e:
        raise bad_input(Target, e, path) from e
    except SettingsError as e:
        raise BadInput("BRINGUP_TARGET__… (environment or .env)", "", f"{e}; tables are written as JSON") from e
    finally:
        _FILE.reset(token)


def resolve_path(path: str, home: str) -> str:
    """`path` with a leading `~` or `$HOME` replaced by the host's home folder; all else is literal."""
    for mark in ("~", "$HOME"):
        if path == mark or path.startswith(mark + "/"):
            return home + path[len(mark):]
    return path


def _here(value: Any, folder: str) -> Any:
    if isinstance(value, str) and "{here}" in value:
        return ":".join(os.path.normpath(part) for part in value.replace("{here}", folder).split(":"))
    if isinstance(value, dict):
        return {k: _here(v, folder) for k, v in value.items()}
    if isinstance(value, list):
        return [_here(v, folder) for v in value]
    return value

