"""Writes the rows of a table in lines that arrive whole. Standard library and syntax of Python 3.6 only.

Ranks that torchrun started share one pipe, in which a longer write than `LINE_BYTES` can be torn by another rank's. (mpirun tears lines
of any length, and marks the pieces, so that the runner can put them together again.)
"""

import json
from itertools import zip_longest

LINE_BYTES = 4096  # PIPE_BUF: a write of that size to a pipe is whole (pipe(7))
NAME_LENGTH = 1500  # names of templated kernels can be longer than a line


def write(events, table, columns):
    """Write `columns`, lists of equal length by name; a column that is null in a whole line is left out of it.

    Text is cut after `NAME_LENGTH` characters, and what is not ASCII in it becomes a question mark.
    """
    names = list(columns)
    frame = len(json.dumps([*names, table])) + 96
    lines, size = [[]], frame
    for values in zip_longest(*columns.values()):
        row = [short(value) if isinstance(value, str) else value for value in values]
        length = len(json.dumps(row)) + len(names)
        if lines[-1] and size + length > LINE_BYTES:
            lines.append([])
            size = frame
        lines[-1].append(row)
        size += length
    for rows in filter(None, lines):
        found = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        events.rows(table, {name: values for name, values in found.items() if any(v is not None for v in values)})


def short(text):
    return text[:NAME_LENGTH].encode("ascii", "replace").decode("ascii")
