"""Writes the rows of a table in lines that arrive whole, whatever launcher carries them. Standard library and syntax of Python 3.6 only.

Ranks that torchrun started share one pipe, in which a longer write than `LINE_BYTES` can be torn by another rank's. mpirun forwards what
it finds in a rank's pipe in pieces of its own size, and puts those of one rank into the lines of another; so that it finds one line at a
time, each is written when the one before was taken.
"""

import json
import os
import stat
import struct
import time
from itertools import zip_longest

LINE_BYTES = 4096  # PIPE_BUF: a write of that size to a pipe is whole (pipe(7))
NAME_LENGTH = 1500  # names of templated kernels can be longer than a line
TAKEN_S = 1.0
POLL_S = 1e-4


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
        wait_until_taken(events.stream)


def short(text):
    return text[:NAME_LENGTH].encode("ascii", "replace").decode("ascii")


def wait_until_taken(stream):
    """Wait until the other end has read all that was written to a pipe, for a second at most."""
    try:
        descriptor = stream.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return
    except (OSError, ValueError):  # a stream that is no file
        return
    limit = time.monotonic() + TAKEN_S
    while unread(descriptor) and time.monotonic() < limit:
        time.sleep(POLL_S)


def unread(descriptor):
    """Bytes in a pipe that nobody has read yet (FIONREAD, ioctl_pipe(2)); 0 where the kernel won't say."""
    import fcntl
    import termios

    try:
        return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    except OSError:
        return 0
