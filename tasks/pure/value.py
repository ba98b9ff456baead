"""The base of every model that a record is made of: frozen, strict, and without the numbers that JSON lacks."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Value"]


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
