"""Takes secret values out of text before anybody else sees it."""

import re
from collections.abc import Iterable, Mapping

__all__ = ["MASK", "Redactor", "names_a_secret"]

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

    def bytes(self, value: bytes) -> bytes:
        return self._bytes.sub(MASK.encode(), value) if self._bytes else value
