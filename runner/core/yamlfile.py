"""Reads a YAML file of ours into a frozen pydantic type, and says file, line and key of whatever is wrong in it.

A key that nobody reads is a setting that silently does not apply, so unknown and doubled keys are errors here, for every file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from runner.core.errors import RequestError, shorten

# The largest file of the suite gives 4,170 events and 5 levels; a hosts.yaml of a thousand hosts some 20,000.
_MOST: Final = 100_000
_LARGEST_BYTES: Final = 10**7
_DEEPEST: Final = 50

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]

# The C loader (libyaml) parses five times faster; it is absent from builds of PyYAML without libyaml.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(path: Path, model: type[M]) -> M:
    """Read the YAML file `path` as a `model`.

    Raises:
        RequestError: the file is absent, is no YAML, is far too large, has a key twice, or does not fit the model; the sentence names file,
            line and key, e.g. ``images/versions.yaml:12: unknown key 'pyton' in images.mxnet[0]; did you mean 'python'?``
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise RequestError(
                f"{path}: has more than {_LARGEST_BYTES} bytes; no file of the suite has, so give the one that you meant"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: can't be read ({error.strerror}); restore it from the repository") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    loader = _Loader(text)
    try:
        _refuse_endless(text, path)
        root = loader.get_single_node()
        if root is None:
            raise RequestError(f"{path}:1: is empty; expected the keys {', '.join(sorted(_keys(model)))}")
        _Nodes(path, loader).check(root, ())
        data = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RequestError(
            f"{path}:{line}: is no valid YAML ({error.problem or error.context}); mend this line"
        ) from error
    except yaml.YAMLError as error:
        raise RequestError(f"{path}: is no valid YAML ({error}); save it as plain text") from error
    finally:
        loader.dispose()
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # A mistyped key is reported before the key that is missing because of it.
        first = min(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
        raise RequestError(_sentence(first, path=path, root=root, model=model)) from error


def _refuse_endless(text: str, path: Path) -> None:
    """Refuse what could not be gone through: libyaml itself ends the process where lists are nested too deep.

    Raises:
        RequestError: too many values, aliases counted as what they stand for, too deep, or an alias within what it stands for.
    """
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in opened}:
                raise RequestError(f"{path}:{line}: *{event.anchor} is within what it stands for; write out what it is")
            total += sizes.get(event.anchor, 1)
        total += 1
        if len(opened) > _DEEPEST or total > _MOST:
            what = f"nested deeper than {_DEEPEST} levels" if len(opened) > _DEEPEST else f"more than {_MOST} values"
            raise RequestError(f"{path}:{line}: is {what}; no file of the suite is, so give the one that you meant")


class _Nodes:
    """The nodes of a file, each checked before it becomes a value."""

    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self._path = path
        self._loader = loader

    def check(self, node: yaml.Node, location: Location) -> None:
        """Raise where a mapping holds a key twice, of which YAML would silently keep the last, or a word only looks like a date or number.

        Raises:
            RequestError: with the line.
        """
        if isinstance(node, yaml.ScalarNode):
            self._check_word(node, location)
        elif isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                self.check(child, (*location, index))
        elif isinstance(node, yaml.MappingNode):
            self._check_keys(node, location)

    def _check_word(self, node: yaml.ScalarNode, location: Location) -> None:
        try:
            self._loader.construct_object(node)
        except (ValueError, LookupError, AttributeError) as error:  # what PyYAML's constructors fail with
            kind = node.tag.rpartition(":")[2]
            raise RequestError(
                f"{self._place(node)}: {_dotted(location)} is {shorten(repr(node.value))}, which is no {kind}; correct it, or put it in quotes"
            ) from error

    def _check_keys(self, node: yaml.MappingNode, location: Location) -> None:
        first_line: dict[str, int] = {}
        for key, child in node.value:
            where = self._place(key)
            if not isinstance(key, yaml.ScalarNode):
                raise RequestError(f"{where}: a key of {_dotted(location)} is not a plain word; write a single word")
            self._check_word(key, location)
            if key.value in first_line:
                raise RequestError(
                    f"{where}: key {key.value!r} is already on line {first_line[key.value]} of {_dotted(location)}; keep one of them"
                )
            first_line[key.value] = key.start_mark.line + 1
            self.check(child, (*location, key.value))

    def _place(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"


def _sentence(detail: ErrorDetails, *, path: Path, root: yaml.Node, model: type[BaseModel]) -> str:
    """Turn one pydantic error into ``file:line: what; next step``."""
    line, location = _place(root, detail["loc"])
    where = f"{path}:{line}: "
    if detail["type"] == "extra_forbidden":
        key, parent = str(location[-1]), location[:-1]
        known = sorted(set().union(*(_keys(m) for m in _models_at(model, parent))))
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return f"{where}unknown key {key!r} in {_dotted(parent)}; {hint}"
    if detail["type"] == "missing":
        return f"{where}key {str(detail['loc'][-1])!r} is missing in {_dotted(location)}; add it"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{where}{_dotted(location)} is {shorten(repr(detail['input']))}: {message[:1].lower()}{message[1:]}; correct it"


def _place(root: yaml.Node, loc: Location) -> tuple[int, Location]:
    """Follow a pydantic location through the YAML nodes: the line (from 1) and the part of the location that is in the file.

    Pydantic's locations also name union members and, for a missing key, the key that is not there; those have no node.
    """
    node, line, seen = root, root.start_mark.line + 1, []
    for step in loc:
        if isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                if key.value == str(step):
                    node, line = child, key.start_mark.line + 1
                    seen.append(step)
                    break
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
            seen.append(step)
    return line, tuple(seen)


def _keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def _models_at(model: type[BaseModel], location: Location) -> tuple[type[BaseModel], ...]:
    """The pydantic types that may stand at `location` below `model`; more than one for a union."""
    types: list[Any] = [model]
    for step in location:
        types = [inner for kind in types for inner in _step_into(kind, step)]
    return tuple(kind for kind in types if isinstance(kind, type) and issubclass(kind, BaseModel))


def _step_into(kind: Any, step: int | str) -> Iterator[Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if (field.alias or name) == step:
                yield from _members(field.annotation)
        return
    arguments = [argument for argument in get_args(kind) if argument is not Ellipsis]
    origin = get_origin(kind)
    if arguments and isinstance(origin, type):
        yield from _members(arguments[-1] if issubclass(origin, Mapping) else arguments[0])


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)


def _dotted(location: Location) -> str:
    """Write ``("images", "mxnet", 0)`` as ``images.mxnet[0]``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.removeprefix(".") or "the top level"
