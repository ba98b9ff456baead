"""Takes secret values out of text before anybody else sees it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

__all__ = ["MASK", "Redactor", "names_a_secret"]

M = TypeVar("M", bound=BaseModel)

MASK = "<secret>"
_SECRET_NAME = re.compile(r"(?i)(token|key|secret|passw(or)?d|credential|auth)")
_SHORTEST = 6  # a shorter value would be found in innocent text


def names_a_secret(name: str) -> bool:
    """Whether a variable or setting of this name is taken for a secret."""
    return bool(_SECRET_NAME.search(name))


class Redactor:
    """Replaces every known secret value by `<secret>`."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)
        self._bytes = re.compile(b"|".join(re.escape(v.encode()) for v in known)) if known else None

    @classmethod
    def of_env(cls, env: Mapping[str, str]) -> "Redactor":
        """A redactor of the variables whose names say that they are secret."""
        return cls(value for name, value in env.items() if names_a_secret(name))

    def text(self, value: str) -> str:
        return self.bytes(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def model(self, value: M) -> M:
        """A frozen model with every string in it masked; where text is escaped later on, that would be too late."""
        return type(value).model_validate(self._deep(value.model_dump()))

    def _deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._deep(k): self._deep(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._deep(v) for v in value]
        return value

    def bytes(self, value: bytes) -> bytes:
        return self._bytes.sub(MASK.encode(), value) if self._bytes else value
