"""What the clock around the commands of `dlscale overhead` said: the file `overhead-....json` beside the records of its runs, without any figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Literal

from pydantic import AwareDatetime, Field, ValidationError, field_validator, model_validator

from runner.core.errors import RequestError, one_line
from runner.core.frozen import FileName, Frozen, load_fields, misfit, refuse_newer

PREFIX: Final = "overhead-"
SCHEMA_VERSION: Final = 1

SideName = Literal["suite", "unwatched", "host", "bare"]


class Printed(Frozen):
    """What the bare loop, which leaves no record, wrote of itself.

    Attributes:
        rate_per_s: samples a second over all its measured iterations.
        first_step_s: seconds from the start of its process to the end of its first step.
    """

    rate_per_s: float
    first_step_s: float


class Command(Frozen):
    """One side of a round.

    Attributes:
        side: `suite`, all of `dlscale bench`; `unwatched`, that without samplers; `host`, that by ENGINE=host; `bare`, a loop without the suite.
        began_s, ended_s: the machine's monotonic clock, which events of the run are stamped with as well, around the whole command.
        run_id: of its record; None of the bare loop.
        printed: of the bare loop alone.
    """

    side: SideName
    began_s: float
    ended_s: float
    run_id: FileName | None = None
    printed: Printed | None = None

    @model_validator(mode="after")
    def _leaves_a_record_or_prints(self) -> Command:
        if (self.run_id is None) is (self.printed is None):
            raise ValueError("a command leaves a record or prints its figures, one of them")
        return self


class Overhead(Frozen):
    """One `dlscale overhead`.

    Attributes:
        name: of its reports, `overhead-` and when it began.
        made_at: when the last of these rounds had ended; UTC.
        command: the argv that started it.
        commit: of the suite's checkout; None where it is none.
        rounds: the commands of each, in the order in which they ran.
    """

    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    name: FileName
    made_at: AwareDatetime
    command: tuple[str, ...]
    commit: str | None
    rounds: tuple[tuple[Command, ...], ...] = Field(min_length=1)

    @field_validator("rounds")
    @classmethod
    def _have_the_suite(cls, rounds: tuple[tuple[Command, ...], ...]) -> tuple[tuple[Command, ...], ...]:
        if not all(any(command.side == "suite" for command in own) for own in rounds):
            raise ValueError("each round has a command of the suite")
        return rounds

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}.json"

    def to_json(self) -> str:
        """Its file."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"


def read_overhead(path: Path) -> Overhead:
    """Read a file that `dlscale overhead` left.

    Raises:
        RequestError: it is damaged, or a newer version of the suite wrote it.
    """
    try:
        fields = load_fields(path.read_text(encoding="utf-8"))
        refuse_newer(fields, path, newest=SCHEMA_VERSION)
        return Overhead.model_validate(fields)
    except ValidationError as error:
        raise RequestError(f"{path}: is no file of `dlscale overhead`, {misfit(error)}") from error
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise RequestError(f"{path}: is no file of `dlscale overhead` ({one_line(error)})") from error


def overhead_schema() -> str:
    """JSON Schema of the file, as committed under `results/schema/`."""
    return json.dumps(Overhead.model_json_schema(by_alias=True), indent=1, sort_keys=True) + "\n"
