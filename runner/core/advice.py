"""Advice in the words of whoever asked: where the command line has flags, `make` has variables."""

from __future__ import annotations

import os
import re
from typing import Final

from runner.core.request import OF_COMMAND, Request

UNDER_MAKE: Final = "DLSCALE_MAKE"
"""Set in the environment by the Makefile."""
_UNITS: Final = re.compile("_(mib|ms|s)$")
_SWITCHES: Final = {name for name, field in Request.model_fields.items() if field.annotation is bool}
_OF_NONE: Final = {"command", "links", "mounts"} | OF_COMMAND.keys()
_OTHERS: Final = {"mount", "link_rate", "link_delay", "beside_host", "csv", "json", "markdown", "format", "program"}
_VARIABLES: Final = {_UNITS.sub("", name) for name in Request.model_fields} - _OF_NONE | _OTHERS
_TARGETS: Final = ("doctor", "clean", "studies")
"""Commands that advice names alone, and that are targets too."""
# A command line in backticks, or a flag with its value: a word in capitals, or one that is no word of the sentence.
_SPOKEN: Final = re.compile(r"`dlscale ([^`]+)`|--([a-z][a-z-]*)(?:[= ]([A-Z]+\b|[^\s;,]*[:/.][^\s;,]+))?")


def spoken(sentence: str) -> str:
    """A sentence for the user; under `make`, `--oversubscribe` becomes `OVERSUBSCRIBE=1`."""
    return _SPOKEN.sub(_in_words_of_make, sentence) if os.environ.get(UNDER_MAKE) else sentence


def _in_words_of_make(found: re.Match[str]) -> str:
    command, flag, value = found.groups()
    if command:
        return f"`make {command}`" if command in _TARGETS else f"`.venv/bin/dlscale {command}`"
    name = flag.replace("-", "_")
    if name not in _VARIABLES:
        return found[0]
    value = "1" if name in _SWITCHES else value
    return name.upper() + (f"={value}" if value else "")
