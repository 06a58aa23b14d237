"""A command line that can't be parsed, told in one sentence: Typer's own box takes ten lines."""

from __future__ import annotations

import difflib
import shlex
from typing import Final

from typer.exceptions import TyperException

_MEANT: Final = 2
"""Options that a mistyped one may be."""


def sentence(error: TyperException) -> str:
    """What is wrong with the words, what may have been meant, and where all that can be typed is listed."""
    context = getattr(error, "ctx", None)
    if context is None:
        return error.format_message()
    command, all_of = f"`{context.command_path}`", f"`{context.command_path} --help` lists all"
    if option := getattr(error, "option_name", None):
        known = [name for param in context.command.params for name in param.opts if name.startswith("--")]
        close = " or ".join(difflib.get_close_matches(option, known, _MEANT))
        return f"{command} has no option {shlex.quote(option)}; {f'did you mean {close}? ' if close else ''}{all_of}"
    param = getattr(error, "param", None)
    if param is not None and not error.message:
        return f"{command} needs {(param.metavar or param.name).upper()}: {param.help}"
    said = error.format_message().rstrip(".").replace(". Did", "; did")
    return f"{said[:1].lower()}{said[1:]}{'' if said.endswith('?') else ';'} {all_of}"
