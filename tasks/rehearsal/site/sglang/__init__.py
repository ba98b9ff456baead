"""A stand-in for SGLang: the release, the hardware and the faults are those of the story that REHEARSAL_STORY names."""

from sglang._story import STORY

__all__ = ["__version__"]

__version__: str = STORY.release
