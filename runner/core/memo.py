"""What a function made of a value, kept as long as that value lives: by which one it is, as records are compared by all that is in them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")
Made = TypeVar("Made")


class Once(Generic[Value, Made]):
    """A function that makes its answer for each value once; values are never changed."""

    def __init__(self, make: Callable[[Value], Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[weakref.ref[Value], Made]] = {}

    def __call__(self, value: Value) -> Made:
        """The answer."""
        if id(value) not in self._known:
            self.keep(value, self._make(value))
        return self._known[id(value)][1]

    def keep(self, value: Value, made: Made) -> None:
        """Give the answer for a value that was made elsewhere."""
        place, known = id(value), self._known
        known[place] = weakref.ref(value, lambda _: known.pop(place, None)), made
