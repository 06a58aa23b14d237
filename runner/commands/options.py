"""Command-line options generated from the fields of `Request`: a command names the fields that it takes and receives the request.

Also: one sentence about arguments that can't be parsed, in place of Typer's ten-line box.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperOption
from typer.exceptions import TyperException

from runner.core import parsing
from runner.core.console import notify
from runner.core.contradictions import request_of
from runner.core.errors import RequestError, unknown
from runner.core.provenance import SUITE_ROOT
from runner.core.request import Option, Request
from runner.core.workload import load_workloads
from runner.images.catalog import load_images
from runner.results.find import RUN, Unit, newest_first, resolve

Text = str | None
Parser = Callable[[str, str], object]  # a variable's name and its non-empty text → a value
# Help of fields that several options set together, or that may be repeated.
_LINKS: Final = {
    "link_rate": "limit what emulated nodes send, e.g. 1gbit; 100mbit,1gbit,none is a sweep",
    "link_delay": "add this to every packet between emulated nodes, e.g. 0.2ms",
}
_MOUNT: Final = "with --image: mount a folder of this machine read-only; separate several by commas, or repeat"
_ENV: Final = "an environment variable of your command; repeat for several"
_COMMAND: Final = "with --image: the command, after --"
_MOST_OFFERED: Final = 50
_UNITS: Final = re.compile("_(mib|ms|s)$")


def flag(
    *names: str,
    help: str,  # noqa: A002 - typer's own name
    metavar: str = "TEXT",
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """An option that shows no default: unless set, the choice is the suite's."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, autocompletion=complete)


def takes(
    *fields: str, defaults: Mapping[str, object] | None = None, as_command: tuple[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these fields of `Request`; the command receives the parsed request as its first argument.

    `defaults` holds the command's own defaults for these fields; `as_command` is an additional option, whose value is a command in an image.
    """
    by_name = {field: _field(field) for field in fields}
    options = {name: annotation for one in by_name.values() for name, annotation in one.options.items()}
    options |= [as_command] if as_command else []

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if get_args(annotation)[0] is bool else None,
                annotation=annotation,
            )
            for name, annotation in options.items()
        ]
        parameters += list(own.values())[1:]

        @functools.wraps(command)
        def run(**words: Any) -> None:
            words = _expand_variables(words)
            values = {field: one.parse(words) for field, one in by_name.items()}
            given = {**(defaults or {}), **{field: value for field, value in values.items() if value is not None}}
            if as_command and (word := words[as_command[0]]):
                if not given.get("image"):
                    raise RequestError(f"--{as_command[0]} {word} is a path in an image of your own; add --image IMG")
                given["command"] = (word,)
            request = request_of(given if given.get("image") else _parse_positional(given))
            command(request, **{name: value for name, value in words.items() if name not in options})

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


@dataclass(frozen=True)
class _Field:
    """A field of `Request` on the command line."""

    options: Mapping[str, Any]  # annotations, by the options' names
    parse: Callable[[Mapping[str, Any]], object]  # parses the field from all options; None if not given or empty


def _field(field: str) -> _Field:
    """The options of a field, and its parser. The parser raises RequestError, naming the variable, if the text is not a value of the field."""
    if field == "links":
        links = {name: Annotated[Text, flag(_dashed(name), help=text)] for name, text in _LINKS.items()}
        return _Field(links, lambda words: parsing.links(*(words[name] for name in _LINKS)))
    if field == "mounts":
        mount = Annotated[list[str] | None, flag("--mount", help=_MOUNT, metavar="SRC[:DST]")]
        return _Field({"mount": mount}, lambda words: parsing.mounts(words["mount"]))
    if field == "env":
        env = Annotated[list[str] | None, flag("--env", help=_ENV, metavar="NAME=VALUE")]
        return _Field({field: env}, lambda words: parsing.environment(words[field]))
    if field == "command":
        argument = Annotated[list[str] | None, typer.Argument(help=_COMMAND, metavar="COMMAND")]
        return _Field({field: argument}, lambda words: tuple(words[field] or ()) or None)
    info = Request.model_fields[field]
    name, about = _UNITS.sub("", field), _option(info)  # `timeout_s` is set by --timeout or TIMEOUT
    names = [_dashed(name), *filter(None, [about.short])]
    if info.annotation is bool:
        return _Field({name: Annotated[bool, typer.Option(*names, help=about.help)]}, lambda words: words[name] or None)
    complete = _completion(field) if field in _NAMES_OF or _choices_of(field) else None
    option = flag(*names, help=about.help, metavar=about.metavar.replace("0..", "N"), complete=complete)
    parse = _parser(field)
    return _Field(
        {name: Annotated[Text, option]}, lambda words: parse(name.upper(), words[name]) if words[name] else None
    )


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class _Command(TyperCommand):
    """A command that refuses a repeated option; Typer would take the last value."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # Typer's own copy of Click is private
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        for param in order:
            if isinstance(param, TyperOption) and not (param.is_flag or param.multiple) and order.count(param) > 1:
                raise RequestError(f"{param.opts[0]} is given twice; leave one of them out")
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """A group of commands, each of which refuses a repeated option."""

    def command(self, name: str | None = None) -> Callable[..., Any]:  # type: ignore[override]  # its many options are not used here
        """Register a function as a command, under its own name by default."""
        return super().command(name, cls=_Command)


VARIABLE: Final = re.compile(r"([A-Z][A-Z_]*)=(.*)", re.DOTALL)  # the form that `make` takes: `GPUS=4`


def _expand_variables(words: Mapping[str, Any]) -> dict[str, Any]:
    """Read `GPUS=4` as `--gpus=4`, next to a model and a framework at most; arguments of a command in an image are left alone.

    Raises RequestError if there is no such option, or if it is given as an option too.
    """
    typed: list[str] = words.get("command") or []
    variables = [found for found in map(VARIABLE.fullmatch, typed) if found]
    if not variables or words.get("image") or len(typed) - len(variables) > len(_NAMES_OF):
        return dict(words)
    known = [name for name in words if name != "command" and not name.startswith("as_")]
    expanded = {**words, "command": [word for word in typed if not VARIABLE.fullmatch(word)]}
    for name, text in (found.groups() for found in variables):
        option = name.lower()
        if option not in known:
            raise RequestError(unknown("variable", name, [one.upper() for one in known]))
        if words[option]:
            raise RequestError(f"{name}={text} and {_dashed(option)} are both given; leave one of them out")
        is_switch = isinstance(words[option], bool)
        if option in _REPEATABLE:
            expanded[option] = [*(expanded[option] or ()), text]
        elif expanded[option]:
            raise RequestError(f"{name} is given twice; leave one of them out")
        else:
            expanded[option] = _switch(name, text) if is_switch else text
        notify([f"{name}={text} is taken as {_dashed(option)}{'' if is_switch else f'={text}'}"])
    return expanded


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise RequestError(f"{name}={text} is neither on nor off; type {name}=1 or leave it out")
    return _SWITCH[text.lower()]


_SWITCH: Final = dict.fromkeys(("0", "no", "false", "off"), False) | dict.fromkeys(("1", "yes", "true", "on"), True)
_REPEATABLE: Final = ("mount", "env")


def _parse_positional(given: Mapping[str, object]) -> Mapping[str, object]:
    """Read positional arguments as names of a model or a framework if all of them are: `bench resnet50`.

    Raises RequestError if the only argument is a mistyped name, or if a name contradicts its option.
    """
    words = cast("tuple[str, ...]", given.get("command", ()))
    named = {
        parsing.bare(word): (field, name)
        for field, names in _NAMES_OF.items()
        for word, name in ({one: one for one in names()} | _ALIASES[field] if words else {}).items()
    }
    meant = dict(filter(None, (named.get(parsing.bare(word)) for word in words)))
    if len(words) == 1 and not meant and difflib.get_close_matches(parsing.bare(words[0]), named):
        raise RequestError(unknown("MODEL", words[0], _models()))
    if len(meant) < len(words):
        fields = [named.get(parsing.bare(word), ("",))[0] for word in words]
        for field in meant if all(fields) else ():
            if (several := fields.count(field)) > 1:
                same = ", ".join(word for word, one in zip(words, fields, strict=True) if one == field)
                raise RequestError(f"{field.upper()} is given {several} times: {same}; leave one")
        return given
    for word, (field, name) in zip(words, meant.items(), strict=True):
        if given.get(field, name) != name:
            raise RequestError(f"{word} and {_dashed(field)}={given[field]} are both given; leave one of them out")
    notify(
        f"{word} is taken as {field.upper()}={name}" for word, (field, name) in zip(words, meant.items(), strict=True)
    )
    return {**given, **meant, "command": None}


def _frameworks() -> tuple[str, ...]:
    return load_images(SUITE_ROOT).frameworks


def _models() -> tuple[str, ...]:
    return tuple(model.name for workload in load_workloads(SUITE_ROOT) for model in workload.models)


_NAMES_OF: Final[Mapping[str, Callable[[], tuple[str, ...]]]] = {"framework": _frameworks, "model": _models}
"""Fields whose values are listed in files of the suite."""
_ALIASES: Final[Mapping[str, dict[str, str]]] = {
    "framework": {"torch": "pytorch", "tf": "tensorflow"},
    "model": {},
    "interconnect": {"ib": "infiniband", "eth": "ethernet", "lo": "loopback"},
    "precision": {"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"},
}
"""Aliases of their values, in the form that `parsing.bare` returns."""


_PARSERS: Final[Mapping[str, Parser]] = {"settings": parsing.settings, "pattern": parsing.pattern}
"""Parsers of fields with a syntax of their own."""


def _choices_of(field: str) -> tuple[str, ...]:
    """The values of a field that takes one or several of a fixed set."""
    kind = _kind(Request.model_fields[field])
    kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return get_args(kind) if get_origin(kind) is Literal else ()


def _completion(field: str) -> Callable[[str], list[str]]:
    """Shell completion for the values of a field."""

    def complete(incomplete: str) -> list[str]:
        names = _NAMES_OF[field]() if field in _NAMES_OF else _choices_of(field)
        return [name for name in names if name.startswith(incomplete)]

    return complete


def _kind(info: FieldInfo) -> Any:
    """The type of a field, without None."""
    kind = info.annotation
    if get_origin(kind) is UnionType or NoneType in get_args(kind):
        return next(one for one in get_args(kind) if one is not NoneType)
    return kind


def _parser(field: str) -> Parser:
    """The parser of a field, by the field's type."""
    if field in _NAMES_OF:
        return lambda variable, text: parsing.one_of(variable, text, _NAMES_OF[field](), aliases=_ALIASES[field])
    if field in _PARSERS:
        return _PARSERS[field]
    info = Request.model_fields[field]
    kind = _kind(info)
    metavar = _option(info).metavar
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return lambda variable, text: parsing.one_of(variable, text, words, aliases=_ALIASES.get(field, {}))
    if get_origin(kind) is tuple:
        (of, _) = get_args(kind)
        return (
            parsing.counts
            if of is int
            else functools.partial(parsing.choices, allowed=of, aliases=_ALIASES.get(field, {}))
        )
    if kind is int:
        return {"TIME": parsing.seconds, "0..": parsing.non_negative}.get(metavar, parsing.count)
    return lambda _, text: Path(text) if kind is Path else text


def _option(info: FieldInfo) -> Option:
    return next(one for one in info.metadata if isinstance(one, Option))


RUN_HELP: Final = "run directory, a run's id or a prefix of it, last or last~N"


def directory_parser(example: str) -> Callable[[str], Path]:
    """A parser for a directory argument that refuses the empty string, because `Path("")` would be the working directory."""

    def read(text: str) -> Path:
        if not text.strip():
            raise RequestError(f"the directory's name is empty; type for example {example}")
        return Path(text)

    return read


def runs_named(word: str, *, example: str, unit: Unit = RUN) -> list[Path]:
    """The runs that a name means, the same for every command; see `find.resolve`. Raises RequestError if it is empty, matches no run, or is ambiguous."""
    return resolve(str(directory_parser(example)(word)), unit)


def directory_argument(text: str, *, example: str) -> Any:
    """A directory argument; `text` is its help, `example` what to type instead of an empty one."""
    return typer.Argument(help=text, parser=directory_parser(example))


def run_argument(more: str = "", *, example: str, metavar: str | None = None, unit: Unit = RUN) -> Any:
    """An argument that is a run, by any of its names, or a directory of runs; `unit` is what a name can mean."""

    def read(text: str) -> Path:
        return runs_named(text, example=example, unit=unit)[0]

    return typer.Argument(help=f"{RUN_HELP}{more}", metavar=metavar, parser=read, autocompletion=complete_run)


def complete_run(incomplete: str) -> list[str]:
    """Shell completion for a run: the newest ids with this prefix."""
    runs = ("last", *(run.name for run in newest_first()))
    return [name for name in runs if name.startswith(incomplete)][:_MOST_OFFERED]


_MOST_SUGGESTED: Final = 2  # suggestions for a mistyped option, at most


def usage_message(error: TyperException) -> str:
    """Name the error and the likely intended option, and say where all options are listed."""
    context = getattr(error, "ctx", None)
    if context is None:
        return error.format_message()
    command, all_of = f"`{context.command_path}`", f"`{context.command_path} --help` lists all"
    if option := getattr(error, "option_name", None):
        known = [name for param in context.command.params for name in param.opts if name.startswith("--")]
        longer = [name for name in known if name.startswith(option)]
        close = " or ".join((longer or difflib.get_close_matches(option, known, _MOST_SUGGESTED))[:_MOST_SUGGESTED])
        return f"{command} has no option {shlex.quote(option)}; {f'did you mean {close}? ' if close else ''}{all_of}"
    param = getattr(error, "param", None)
    if param is not None and not error.message:
        return f"{command} needs {(param.metavar or param.name).upper()}: {param.help}"
    message = error.format_message().rstrip(".").replace(". Did", "; did")
    return f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else ';'} {all_of}"
