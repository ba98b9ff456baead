"""One object that says how long is left, handed down through every wait; and the only sleep of the product."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Deadline", "pause"]

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in monotonic time. Make it with `Deadline.after(seconds)`; tighten it with `.sooner(seconds)`."""

    at: float
    clock: Clock = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> "Deadline":
        return cls(clock() + seconds, clock)

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - self.clock())

    @property
    def passed(self) -> bool:
        return self.clock() >= self.at

    def sooner(self, seconds: float) -> "Deadline":
        """The earlier of this one and `seconds` from now."""
        return Deadline(min(self.at, self.clock() + seconds), self.clock)


def pause(seconds: float, deadline: Deadline) -> None:
    """Sleep `seconds`, but not past the deadline."""
    time.sleep(min(max(0.0, seconds), deadline.left_s))
