"""Reads a YAML file of ours into a frozen pydantic type, and says file, line and key of whatever is wrong in it.

A key that nobody reads is a setting that silently does not apply, so unknown and doubled keys are errors here, for every file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from runner.errors import RequestError

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]

# The C loader (libyaml) parses five times faster; it is absent from builds of PyYAML without libyaml.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(path: Path, model: type[M]) -> M:
    """Read the YAML file `path` as a `model`.

    Raises:
        RequestError: the file is absent, is no YAML, has a key twice, or does not fit the model; the sentence names file,
            line and key, e.g. ``images/versions.yaml:12: unknown key 'pyton' in images.mxnet[0]; did you mean 'python'?``
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: can't be read ({error.strerror}); restore it from the repository") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise RequestError(f"{path}:1: is empty; expected the keys {', '.join(sorted(_keys(model)))}")
        _refuse_doubled_keys(root, path=path, location=())
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


def _refuse_doubled_keys(node: yaml.Node, *, path: Path, location: Location) -> None:
    """Raise where a mapping holds a key twice: YAML would silently keep the last."""
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _refuse_doubled_keys(child, path=path, location=(*location, index))
    if not isinstance(node, yaml.MappingNode):
        return
    first_line: dict[str, int] = {}
    for key, child in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise RequestError(f"{path}:{line}: a key of {_dotted(location)} is not a plain word; write a single word")
        if key.value in first_line:
            raise RequestError(
                f"{path}:{line}: key {key.value!r} is already on line {first_line[key.value]} of {_dotted(location)}; keep one of them"
            )
        first_line[key.value] = line
        _refuse_doubled_keys(child, path=path, location=(*location, key.value))


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
    return f"{where}{_dotted(location)} is {_short(detail['input'])}: {message[:1].lower()}{message[1:]}; correct it"


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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 -- a sentence stays on one screen line
