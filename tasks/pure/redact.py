"""Takes secret values out of text, bytes and whole values before anybody else sees them."""

import builtins
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from html import escape
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from tasks.pure.record import HaltBy, MoveKind

__all__ = ["MASK", "Redactor", "names_a_secret"]

M = TypeVar("M", bound=BaseModel)

MASK = "<secret>"
_MASK = MASK.encode()
_SHORTEST = 6  # a shorter value would be found in innocent text
_LONG = 16  # a line of a longer secret that is one by itself
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {
        "token", "key", "apikey", "secret", "password", "passwd", "passphrase", "credential", "credentials",
        "auth", "authorization", "bearer", "cookie", "pat",
    }
)  # fmt: skip

# Each rule: what has to stand in the text, in lower case, for the rule to be worth a try, and the pattern; of a match
# only what follows the group `kept` is secret. Shapes are those that issuers publish so that scanners can find them.
# Sources: GitHub's list of supported secret scanning patterns; huggingface_hub (hf_), OpenAI and Anthropic (sk-),
# NVIDIA NGC (nvapi-), RFC 6750 (Bearer), RFC 7519 (JWT). Logs speak of tokens all the time ("#new-token: 64"):
# after that word alone nothing is hidden, but for variables in capitals.
_VALUE = r"[^\s\"'\\,;)\]}&]{6,}"
_IS = r"(?:\s*[=:]\s*|\s+(?=[\"']))"
_RULES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("bearer",), r"(?P<kept>(?i:\bbearer\s+))[A-Za-z0-9._~+/=-]{8,}"),
    (("authorization",), r"(?P<kept>(?i:\bauthorization\W+(?:basic|token)\s+))[A-Za-z0-9._~+/=-]{8,}"),
    (("://",), r"(?P<kept>://[^\s/:@]*:)[^\s/@]+(?=@)"),
    (
        ("apikey", "api_key", "api-key", "password", "passwd", "passphrase", "secret", "private_key", "private-key"),
        r"(?P<kept>(?i:api[_-]?key|passw(?:or)?d|passphrase|secret(?:[_-]?(?:access[_-]?)?key)?|private[_-]?key)"
        rf"\\?[\"']?{_IS}\\?[\"']?)(?!None\b|null\b|true\b|false\b|<secret>){_VALUE}",
    ),
    (
        tuple(f"{w}{sep}token" for w in ("access", "auth", "refresh", "session", "hf", "hub") for sep in "_-"),
        r"(?P<kept>(?i:(?:access|auth|refresh|session|hf|hub)[_-]token)"
        rf"\\?[\"']?{_IS}\\?[\"']?)(?!None\b|null\b|true\b|false\b|<secret>){_VALUE}",
    ),
    (
        ("--",),
        rf"(?P<kept>--(?i:[\w-]{{0,40}}(?:api[_-]?key|password|secret|[a-z]-token))(?:=|\s+))(?!<secret>){_VALUE}",
    ),
    (("_token",), rf"(?P<kept>(?<=[A-Z0-9])_TOKEN\\?[\"']?\s*[=:]\s*\\?[\"']?)(?!<secret>){_VALUE}"),
    (("hf_",), r"\bhf_[A-Za-z0-9]{16,}"),
    (("sk-",), r"\bsk-[A-Za-z0-9_-]{16,}"),
    (("nvapi-",), r"\bnvapi-[A-Za-z0-9_-]{16,}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    (("github_pat_",), r"\bgithub_pat_\w{20,}"),
    (("glpat-",), r"\bglpat-[\w-]{16,}"),
    (("xox",), r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    (("akia", "asia"), r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b"),
    (("aiza",), r"\bAIza[A-Za-z0-9_-]{35}"),
    (("eyj",), r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    (
        ("private key-----",),
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
    ),
)
_SHAPES = [(tuple(word.encode() for word in words), re.compile(rule.encode())) for words, rule in _RULES]

# A password that is one of the record's own words is none, and masking it would make the record unreadable.
_OURS = frozenset((*get_args(MoveKind), *get_args(HaltBy), "not_run"))


def names_a_secret(name: str) -> bool:
    """Whether a variable or setting of this name is taken for a secret: HF_TOKEN and apiKey are, TOKENIZER is not."""
    words = [w.lower() for w in _WORDS.findall(name)]
    return bool(_SECRET_WORDS & set(words)) or "".join(words[-2:]) == "apikey"


class Redactor:
    """Replaces what is secret by `<secret>`: values that are known, shapes of well-known tokens, patterns of the user.

    `values` are secret wherever they stand, also as JSON or HTML would write them. `patterns` are regular
    expressions, of which the whole match is secret.
    """

    def __init__(self, values: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._values, self._patterns = set(values), [(re.compile(p), MASK) for p in patterns]
        self.learn()

    def learn(self, *values: str) -> None:
        """From now on these are secret, too: what is known only when a run has begun."""
        self._values |= set(values)
        known = {f.encode() for v in self._values - _OURS if len(v) >= _SHORTEST for f in _forms(v)}
        self._known = re.compile(b"|".join(re.escape(f) for f in sorted(known, key=len, reverse=True)))

    @classmethod
    def of_env(cls, *environments: Mapping[str, str], patterns: Iterable[str] = ()) -> "Redactor":
        """A redactor of the variables whose names say that they are secret."""
        named = (value for env in environments for name, value in env.items() if names_a_secret(name))
        return cls(named, patterns)

    def hide(self, name: str) -> None:
        """From now on this name of a host is secret where it stands as a word, however short it is.

        The same name has the same mask in all runs: the history of two hosts is not that of one.
        """
        mask = f"<host {hashlib.sha256(name.encode()).hexdigest()[:6]}>"
        self._patterns.append((re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), mask))

    def text(self, value: str) -> str:
        return self.bytes(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def bytes(self, value: "builtins.bytes") -> "builtins.bytes":
        if self._known.pattern:
            value = self._known.sub(_MASK, value)
        if self._patterns:
            text = value.decode("utf-8", "surrogateescape")
            for pattern, mask in self._patterns:
                text = pattern.sub(mask, text)
            value = text.encode("utf-8", "surrogateescape")
        low = value.lower()
        for words, shape in _SHAPES:
            if any(word in low for word in words):
                value = shape.sub(_hidden, value)
        return value

    def value(self, value: Any) -> Any:
        """A plain value with all its texts redacted; what stands under a secret's name goes as a whole."""
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.value(k): MASK if isinstance(v, str) and names_a_secret(str(k)) else self.value(v)
                for k, v in value.items()
            }
        if isinstance(value, Sequence) and not isinstance(value, builtins.bytes | bytearray):
            words = list(self._words(value))
            return tuple(words) if isinstance(value, tuple) else words
        return value

    def model(self, value: M) -> M:
        """A model with all its texts redacted."""
        return type(value).model_validate(self.value(value.model_dump(by_alias=True)))

    def _words(self, values: Sequence[Any]) -> Iterable[Any]:
        """The word after an option whose name says that it is secret is one, whatever it looks like."""
        before: Any = None
        for value in values:
            follows = isinstance(before, str) and before.startswith("--") and "=" not in before
            hide = follows and names_a_secret(before) and isinstance(value, str) and not value.startswith("--")
            yield MASK if hide else self.value(value)
            before = value


def _forms(value: str) -> Iterable[str]:
    """How the same value is written in the formats of our outputs, and each long line of one that has several."""
    lines = (line for line in value.splitlines() if len(line) >= _LONG and line != value)
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], escape(value), *lines


def _hidden(match: "re.Match[bytes]") -> bytes:
    """The mask in place of the secret; as many lines as there were, since evidence is named by its line."""
    kept = match["kept"] if "kept" in match.re.groupindex else b""
    return kept + _MASK + b"\n" * match.group()[len(kept) :].count(b"\n")
