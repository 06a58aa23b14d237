"""Types → columns: a record's fields by their dotted names, with underscores, and what each means in the words of its type. Pure."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

SqlType = Literal["VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "JSON", "VARCHAR[]", "BIGINT[]", "DOUBLE[]"]
_SCALARS: Final[Mapping[type, SqlType]] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DOUBLE",
    str: "VARCHAR",
    datetime: "TIMESTAMP",
    AwareDatetime: "TIMESTAMP",
}
_LISTS: Final[Mapping[SqlType, SqlType]] = {"VARCHAR": "VARCHAR[]", "BIGINT": "BIGINT[]", "DOUBLE": "DOUBLE[]"}
_ENTRY: Final = re.compile(r"^    (\w+(?:, \w+)*): (.*)$")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        type: as SQL calls it.
        path: keys that lead to its value in the JSON of a row's model.
        meaning: what its type says of it; empty where the name says all.
    """

    name: str
    type: str
    path: tuple[str, ...] = ()
    meaning: str = ""

    def of(self, fields: Mapping[str, Any]) -> Any:
        """Its value in the JSON of a value; None where that has no such field."""
        found: Any = fields
        for key in self.path:
            found = found.get(key) if isinstance(found, dict) else None
        return found


def columns_of(
    model: type[BaseModel], *, prefix: tuple[str, ...] = (), without: frozenset[str] = frozenset()
) -> tuple[Column, ...]:
    """The columns of a model: a scalar or a list of them each, models within models in their place, all else as JSON.

    Args:
        model: the type of a row.
        prefix: keys that lead to it.
        without: dotted names of fields that are left out.
    """
    found: dict[str, Column] = {}
    said = meanings(model)
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        if ".".join(path) in without:
            continue
        for column in _columns(field, path, without):
            known = found.setdefault(column.name, column)
            meaning = said.get(name, "") if column.path == path else column.meaning
            found[column.name] = replace(known, meaning=known.meaning or meaning)
    return tuple(found.values())


def _columns(field: FieldInfo, path: tuple[str, ...], without: frozenset[str]) -> Iterator[Column]:
    kinds = _without_none(field.annotation)
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    if models and len(models) == len(kinds):
        for model in models:
            yield from columns_of(model, prefix=path, without=without)
    else:
        yield Column(name="_".join(path), type=_sql_type(kinds), path=path)


def _without_none(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the one that it is, but for None."""
    one_of = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return tuple(kind for kind in one_of if kind is not type(None))


def _sql_type(kinds: tuple[Any, ...]) -> SqlType:
    """What SQL calls values of these types; JSON where it has no word for them."""
    found = {_of_one(kind) for kind in kinds}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return found.pop() if len(found) == 1 else "JSON"


def _of_one(kind: Any) -> SqlType:
    if get_origin(kind) is Literal:
        return _sql_type(tuple({type(value) for value in get_args(kind)}))
    if get_origin(kind) is tuple:
        return _LISTS.get(_sql_type(tuple({one for one in get_args(kind) if one is not Ellipsis})), "JSON")
    metadata = getattr(kind, "__metadata__", None)  # Annotated
    return _of_one(kind.__origin__) if metadata else _SCALARS.get(kind, "JSON")


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the docstring of a model says of its fields, one sentence each, by their names."""
    _, _, section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    names: tuple[str, ...] = ()
    for line in section.splitlines():
        if entry := _ENTRY.match(line):
            names = tuple(entry[1].split(", "))
            found |= dict.fromkeys(names, entry[2])
        elif line.startswith("        "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = ()
    return found
