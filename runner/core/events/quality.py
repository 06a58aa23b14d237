"""What a program says of what its model is good for: epochs with their validation, predictions at a lower precision, how long they take."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from runner.core.events.base import EventBase


class Validated(BaseModel):
    """One rank's share of the validation samples: the sum of their losses, and how many were classified right."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: int
    loss_sum: float | None
    correct: int


class Epoch(EventBase):
    """An epoch of a training that is watched to converge; `seconds` are those of its training, without validation."""

    event: Literal["epoch"]
    epoch: int
    iterations: int
    seconds: float
    train_loss: float | None
    validation: Validated


class Accuracy(EventBase):
    """What predictions at a precision came to on labelled samples, beside those of the same network in `reference` precision.

    `agree` is how many predictions are the same in both, `fit_iterations` how long the network was trained before.
    """

    event: Literal["accuracy"]
    precision: str
    samples: int
    correct: int
    reference: str
    reference_correct: int
    agree: int
    fit_iterations: int


class Latency(EventBase):
    """Seconds of batches of inference that had the device to themselves, each time that one was timed.

    With transfer: from the samples in the host's memory to the predictions there. Without: from the samples in the device's memory until
    the device was done; null where nothing is transferred, or the program can't tell. While throughput was measured, `in_flight` batches
    were under way at once.
    """

    event: Literal["latency"]
    in_flight: int
    batch: int
    with_transfer: tuple[float, ...]
    without_transfer: tuple[float, ...] | None
