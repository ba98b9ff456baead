"""Where a run happens: one host, its Python, its model (contracts §5). TOML, then BRINGUP_… variables, then flags."""

import os
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from settings.source import bad_input, find, read_toml

__all__ = ["Target", "load_target", "resolve_path"]


class Target(BaseSettings):
    """A host that serves. Every field can come from `BRINGUP_TARGET__<FIELD>`."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="BRINGUP_TARGET__", env_nested_delimiter="__", env_file=None,
        protected_namespaces=(),
    )

    name: str = Field(description="how people call this host; stands in records and run names", min_length=1)
    host: str = Field("local", description='"local", or an ssh alias or address')
    port: int | None = Field(None, ge=1, le=65_535, description="SSH port; None = ssh_config or 22")
    user: str | None = Field(None, description="SSH user; None = ssh_config or the current one")
    identity_file: str | None = Field(None, description="private key on this machine; None = ssh_config or agent")
    known_hosts_file: str | None = Field(None, description="trusted host keys; None = ssh_config or ~/.ssh/known_hosts")
    ssh_config: str | None = Field(None, description="ssh_config file on this machine; None = ~/.ssh/config")
    python: str = Field("python3", description="the engine's Python on the host, e.g. ~/ml-env/bin/python3")
    env: dict[str, SecretStr] = Field({}, description="environment of all that runs on the host; values never shown")
    state_dir: str = Field("~/.glm5-bringup", description="folder on the host for the supervisor (mode 0700)")
    model: str = Field(description="model path on the host, or hub id")
    gpus: int = Field(0, ge=0, description="GPUs that a run takes; 0 = none (CPU)")
    lease_s: float = Field(90.0, ge=1, description="seconds a server outlives its orchestrator")

    @field_validator("name")
    @classmethod
    def _name_is_a_file_name(cls, value: str) -> str:
        if "/" in value or value.startswith("."):
            raise ValueError(f"'{value}' is used in file names: no '/', no leading '.'")
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
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings names the arguments
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment and `.env` win over what the TOML file gave (which arrives as init values)."""
        return env_settings, dotenv_settings, init_settings


def load_target(name: str, **flags: Any) -> Target:
    """The target called `name` in settings/targets/, or at that path; `flags` win over everything else.

    `{here}` in a value is the folder of the file, so that a local target can name files beside it.
    Raises: BadInput.
    """
    path = find("targets", name)
    values = _here(read_toml(path), str(path.resolve().parent))
    values.setdefault("name", path.stem)
    try:
        dotenv = Path(".env")
        target = Target(**values, _env_file=dotenv if dotenv.is_file() else None)
        return Target.model_validate({**target.model_dump(), **{k: v for k, v in flags.items() if v is not None}})
    except ValidationError as e:
        raise bad_input(Target, e, path) from e


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

