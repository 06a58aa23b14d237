"""Options of the command line, made from the fields of `Request`: a command names the fields that it takes, and is handed the request."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from runner.core import parsing
from runner.core.contradictions import request_of
from runner.core.errors import RequestError
from runner.core.request import Option, Request

Text = str | None
Read = Callable[[str, str], object]
"""A variable's name and its text, which is not empty, → a value."""
# Fields whose words are read together, or by a type of their own.
_LINKS: Final = {
    "link_rate": "hold what emulated nodes send to this, e.g. 1gbit; 100mbit,1gbit,none is a sweep",
    "link_delay": "add this to every packet between emulated nodes, e.g. 0.2ms",
}
_MOUNT: Final = "with --image: show a folder of this machine in it, read-only; several with commas or again"
_COMMAND: Final = "with --image: the command, after --"
_UNITS: Final = re.compile("_(mib|ms|s)$")


def flag(*names: str, help: str, metavar: str = "TEXT") -> Any:  # noqa: A002 - typer's own name
    """An option that shows no default of its own: what is not given is left to the suite."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def takes(
    *fields: str, usual: Mapping[str, object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these fields of `Request`; it gets the request that their words make as its first argument.

    Args:
        fields: by name.
        usual: what the command takes for fields that are not given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        options = {name: one for field in fields for name, one in _options(field)}

        @functools.wraps(command)
        def run(**words: Any) -> None:
            asked = {**(usual or {}), **_values(fields, words)}
            command(request_of(asked), **{name: value for name, value in words.items() if name not in options})

        parameters = [*options.values(), *list(own.values())[1:]]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _options(field: str) -> Iterable[tuple[str, inspect.Parameter]]:
    """The options of one field, by the name of each."""
    if field == "links":
        for name, text in _LINKS.items():
            yield _parameter(name, Annotated[Text, flag(f"--{name.replace('_', '-')}", help=text)])
    elif field == "mounts":
        yield _parameter("mount", Annotated[list[str] | None, flag("--mount", help=_MOUNT, metavar="SRC[:DST]")])
    elif field == "command":
        yield _parameter("command", Annotated[list[str] | None, typer.Argument(help=_COMMAND, metavar="COMMAND")])
    else:
        name, option = _named(field), _option(Request.model_fields[field])
        names = [f"--{name.replace('_', '-')}", *filter(None, [option.short])]
        if Request.model_fields[field].annotation is bool:
            yield _parameter(name, Annotated[bool, typer.Option(*names, help=option.help)], default=False)
        else:
            metavar = option.metavar.replace("0..", "N")
            yield _parameter(name, Annotated[Text, flag(*names, help=option.help, metavar=metavar)])


def _parameter(name: str, annotation: object, *, default: object = None) -> tuple[str, inspect.Parameter]:
    return name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _values(fields: Iterable[str], words: Mapping[str, Any]) -> dict[str, object]:
    """What was given of each field; what was not is left out, and so is what was given as an empty text.

    Raises:
        RequestError: a word is no value of its field; the sentence names the variable.
    """
    found: dict[str, object] = {}
    for field in fields:
        if field == "links":
            found[field] = parsing.links(*(words[name] for name in _LINKS))
        elif field == "mounts":
            found[field] = parsing.mounts(words["mount"])
        elif field == "command":
            found[field] = tuple(words["command"] or ()) or None
        elif word := words[_named(field)]:
            found[field] = word if word is True else _reader(field)(_named(field).upper(), word)
    return {field: value for field, value in found.items() if value is not None}


def _reader(field: str) -> Read:
    """What reads the text of a field, by the field's type."""
    info = Request.model_fields[field]
    kind = info.annotation
    if get_origin(kind) is UnionType or NoneType in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    metavar = _option(info).metavar
    if get_origin(kind) is Literal:
        return functools.partial(parsing.choice, allowed=kind)
    if get_origin(kind) is tuple:
        (of, _) = get_args(kind)
        return parsing.counts if of is int else functools.partial(parsing.choices, allowed=of)
    if kind is int:
        return {"TIME": parsing.seconds, "0..": parsing.whole}.get(metavar, parsing.count)
    return lambda _, text: Path(text) if kind is Path else text


def _option(info: FieldInfo) -> Option:
    return next(one for one in info.metadata if isinstance(one, Option))


def _named(field: str) -> str:
    """A field without its unit: `timeout_s` is asked for by --timeout, and by TIMEOUT."""
    return _UNITS.sub("", field)


def named_directory(say: str) -> Callable[[str], Path]:
    """What reads a directory of the command line: an empty one is refused, as `Path("")` would be the one that the user is in.

    Args:
        say: what to type instead.
    """

    def read(text: str) -> Path:
        if not text.strip():
            raise RequestError(f"the directory is empty; say which, {say}")
        return Path(text)

    return read
