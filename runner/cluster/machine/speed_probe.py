"""Measures the bandwidth of a node's memory and disk.

    python3 -c "$(cat speed_probe.py)" FOLDER

Runs here, on a node reached by a command line, or in a container of the suite's base, so it is one file that needs only the standard library.
Prints one line of JSON, in bytes per second: `memory` for copies by all cores concurrently, counting bytes read and written (STREAM's Copy:
J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE TCCA Newsletter, December 1995); `disk_write`
for a file in FOLDER until it is on the disk; `disk_read` for the same file, after the kernel was told to drop it from its cache.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path

# Larger than any core's share of a cache.
BUFFER_BYTES = 1 << 26
COPY_S = 1.0
# More threads than this are no faster on any memory, and a container may not have more.
MOST_THREADS = 48
FILE_BYTES = 1 << 28
BLOCK = os.urandom(1 << 20)


def copy_repeatedly(seconds: float, start: threading.Barrier, rates: list[float]) -> None:
    """Copy one buffer to another repeatedly; ctypes lets other threads run meanwhile."""
    source, target = (ctypes.create_string_buffer(BUFFER_BYTES) for _ in range(2))
    ctypes.memset(source, 1, BUFFER_BYTES)
    ctypes.memset(target, 1, BUFFER_BYTES)  # pages are allocated when they are first written
    start.wait()
    began, count = time.monotonic(), 0
    while (took := time.monotonic() - began) < seconds or not count:
        ctypes.memmove(target, source, BUFFER_BYTES)
        count += 1
    rates.append(2 * count * BUFFER_BYTES / took)


def memory_rate() -> float:
    """Bytes per second, by all cores that this process may use."""
    count = min(MOST_THREADS, len(os.sched_getaffinity(0)))
    start, rates = threading.Barrier(count), list[float]()
    threads = [threading.Thread(target=copy_repeatedly, args=(COPY_S, start, rates)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def disk_rates(folder: Path) -> tuple[float, float]:
    """Bytes per second of writing and of reading a file."""
    path = folder / f"dlscale-{os.getpid()}"
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        path.unlink()  # so nothing is left, however this ends
        began = time.monotonic()
        for _ in range(FILE_BYTES // len(BLOCK)):
            os.write(file, BLOCK)
        os.fsync(file)
        written = FILE_BYTES / (time.monotonic() - began)
        os.posix_fadvise(file, 0, FILE_BYTES, os.POSIX_FADV_DONTNEED)
        os.lseek(file, 0, os.SEEK_SET)
        began = time.monotonic()
        while os.read(file, len(BLOCK)):
            pass
        return written, FILE_BYTES / (time.monotonic() - began)
    finally:
        os.close(file)


if __name__ == "__main__":
    write, read = disk_rates(Path(sys.argv[1]))
    sys.stdout.write(json.dumps({"memory": memory_rate(), "disk_write": write, "disk_read": read}) + "\n")
