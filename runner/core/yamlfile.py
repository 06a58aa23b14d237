"""Reads the suite's YAML files into frozen pydantic types; errors name file, line and key.

A key that is not read would be a setting that silently does not apply, so unknown and duplicate keys are errors in every file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from yaml.constructor import ConstructorError

from runner.core.errors import RequestError, shorten

# The suite's largest file has 4,170 YAML events and 5 levels; a hosts.yaml with a thousand hosts has some 20,000 events.
_MAX_VALUES: Final = 100_000
_MAX_BYTES: Final = 10**7
_MAX_DEPTH: Final = 50

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]

# The C loader (libyaml) parses five times faster; it is absent from builds of PyYAML without libyaml.
_Fastest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Fastest):  # type: ignore[misc]
    """PyYAML's loader, but it also refuses duplicate keys, of which PyYAML keeps the last, and values on which its constructors fail."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        lines: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key is not a plain word", key.start_mark)
            if key.value in lines:
                raise ConstructorError(
                    None, None, f"key {key.value!r} is already on line {lines[key.value]}", key.start_mark
                )
            lines[key.value] = key.start_mark.line + 1
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            what = f"{shorten(repr(node.value))} is not a valid {node.tag.rpartition(':')[2]}, put it in quotes if it is text"
            raise ConstructorError(None, None, what, node.start_mark) from error


def load(path: Path, model: type[M], *, example: str | None = None) -> M:
    """Read the YAML file `path` as a `model`; `example` is a file of the suite of that kind. Raises RequestError with file, line and key.

    Example: ``images/versions.yaml:12: unknown key 'pyton' in images.mxnet[0]; did you mean 'python'?``
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RequestError(
                f"{path}: has more than {_MAX_BYTES} bytes, which no file of the suite has; check the path"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: can't be read ({error.strerror}); restore it from the repository") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    try:
        _refuse_oversized(text, path)
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise RequestError(f"{path}:1: is empty; expected the keys {', '.join(sorted(_fields_at(model, ())))}")
        return model.model_validate(loader.construct_document(root))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RequestError(
            f"{path}:{line}: is not valid YAML ({error.problem or error.context}); correct this line"
        ) from error
    except yaml.YAMLError as error:
        raise RequestError(f"{path}: is not valid YAML ({error}); save it as plain text") from error
    except ValidationError as error:
        # Report a mistyped key rather than the key that is missing because of it.
        first = min(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
        line, location = _locate(root, first["loc"])
        raise RequestError(f"{path}:{line}: {_sentence(first, location, model, example)}") from error


def _refuse_oversized(text: str, path: Path) -> None:
    """Refuse files that are too deep, too large once aliases are expanded, or recursive: libyaml crashes on lists nested too deep."""
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_Fastest):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in opened}:
                raise RequestError(f"{path}:{line}: *{event.anchor} is inside its own value; write that value out")
            total += sizes.get(event.anchor, 1)
        total += 1
        if (too_deep := len(opened) > _MAX_DEPTH) or total > _MAX_VALUES:
            what = f"is nested deeper than {_MAX_DEPTH} levels" if too_deep else f"has more than {_MAX_VALUES} values"
            raise RequestError(f"{path}:{line}: {what}, unlike any file of the suite; check the path")


def _sentence(detail: ErrorDetails, location: Location, model: type[BaseModel], example: str | None) -> str:
    """Put one of pydantic's errors into a sentence with the next step."""
    if detail["type"] == "extra_forbidden":
        key, parent = str(location[-1]), location[:-1]
        known = sorted(_fields_at(model, parent))
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return f"unknown key {key!r} in {_dotted(parent)}; {hint}"
    if detail["type"] == "missing":
        return f"key {str(detail['loc'][-1])!r} is missing in {_dotted(location)}; add it"
    message = detail["msg"].removeprefix("Value error, ")
    step = "correct it"
    if detail["type"] == "model_type":  # pydantic's message names the type
        message = f"expected {_expected(_fields_at(model, location))}"
        step = f"see {example}" if example else step
    return f"{_dotted(location)} is {shorten(repr(detail['input']))}: {message[:1].lower()}{message[1:]}; {step}"


def _expected(fields: Mapping[str, FieldInfo]) -> str:
    """Say which keys a mapping needs, or may have if it needs none: ``"`hosts:` with a list"``."""
    known = {name: field for name, field in fields.items() if field.is_required()} or fields
    lists = {name for name, field in known.items() if get_origin(field.annotation) in (list, tuple)}
    words = [f"`{name}:`{' with a list' if name in lists else ''}" for name in known]
    return (" and " if known is not fields else " or ").join(words) or "a mapping"


def _locate(node: yaml.Node, loc: Location) -> tuple[int, Location]:
    """Follow a pydantic location through the YAML nodes; return the line (from 1) and the part of the location that exists in the file.

    Pydantic's locations also contain union members and missing keys, which have no node.
    """
    line, seen = node.start_mark.line + 1, []
    for step in loc:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, child) for key, child in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = (node.value[step], node.value[step])
        else:
            found = None
        if found:
            line, node = found[0].start_mark.line + 1, found[1]
            seen.append(step)
    return line, tuple(seen)


def _fields_at(kind: Any, location: Location) -> dict[str, FieldInfo]:
    """Return the keys that a mapping at a location within a type may have; for a union, those of all members."""
    if get_origin(kind) in (Union, UnionType, Annotated):
        return {name: field for one in get_args(kind) for name, field in _fields_at(one, location).items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        if not location:
            return fields
        inner = fields.get(str(location[0]))
        return _fields_at(inner.annotation, location[1:]) if inner else {}
    values = [argument for argument in get_args(kind) if argument is not Ellipsis]
    return _fields_at(values[-1], location[1:]) if values and location else {}


def _dotted(location: Location) -> str:
    """Format ``("images", "mxnet", 0)`` as ``images.mxnet[0]``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.removeprefix(".") or "the top level"
