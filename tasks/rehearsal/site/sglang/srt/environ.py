"""Environment variables that the release reads: an attribute each, as in the real module of this name."""

from sglang._story import STORY

__all__ = ["Envs"]

# Source: the wheels' environ.py, as far as those go that people set to bring a model up.
_EVERY = ("SGLANG_ENABLE_JIT_DEEPGEMM", "SGLANG_HEALTH_CHECK_TIMEOUT", "SGLANG_LOG_MS")
_SINCE = {
    "SGLANG_SPEC_NAN_DETECTION": ("0.5.10.post1",),
    "SGLANG_ENABLE_ASYNC_ASSERT": ("0.5.17", "0.5.23"),
    "SGLANG_SANITIZE_NAN_LOGITS": ("0.5.17", "0.5.23"),
    "SGLANG_ENABLE_NAN_LOGITS_CHECK": ("0.5.23",),
    "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": ("0.5.17", "0.5.23"),
    "SGLANG_NSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": ("0.5.9", "0.5.10.post1"),
}


class Envs:
    """Filled below, for the release of the story."""


for _name in (*_EVERY, *(name for name, releases in _SINCE.items() if STORY.release in releases)):
    setattr(Envs, _name, None)
