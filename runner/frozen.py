"""`Frozen`: what a value of the suite is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: never changed, and without a key that nobody reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")
