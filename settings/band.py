"""When a number of tonight is news: how far from the median of earlier nights it must lie."""

from pydantic import Field

from settings.source import Declared

__all__ = ["Band", "Bands", "TimeBand"]


class Band(Declared):
    """Values within it are no news. Its half width is the largest of the three distances."""

    z: float = Field(3.5, gt=0, description="robust standard deviations (1.4826 × MAD of the nights)")
    change: float = Field(0.05, gt=0, description="share of the median")
    least: float = Field(0.0, ge=0, description="distance in the value's own unit")


class TimeBand(Band):
    """Starts vary more than figures: disks are shared, and caches are cold now and then."""

    change: float = Field(0.25, gt=0, description="share of the median")
    least: float = Field(5.0, ge=0, description="seconds")


class Bands(Declared):
    """How tonight is compared with the good nights before it."""

    figure: Band = Band()
    time: TimeBand = TimeBand()
    nights: int = Field(10, ge=1, description="good runs looked at, the newest")
    fewest: int = Field(5, ge=1, description="values below which a number is told and not judged")
