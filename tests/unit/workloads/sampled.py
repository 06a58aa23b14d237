"""Runs the sampler as the runner does, as a process with a pipe as standard input, and parses its output with the runner's own parser."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from runner.core.events.parse import Rows, parse_line

HERE = Path(__file__).resolve().parent
MONITOR = HERE.parents[2] / "workloads" / "monitor.py"
PATIENCE_S = 60


class Sampled:
    """A running sampler; `nvml` configures made-up GPUs, `modules` are folders that precede the libraries."""

    def __init__(self, *options, nvml=None, modules=(), path=None, command=(), stdin=subprocess.PIPE):
        folders = [str(folder) for folder in modules]
        if nvml is not None:
            folders.append(str(HERE / "made_up_nvml"))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(folders),
            "MADE_UP_NVML": json.dumps(nvml),
            "PATH": str(path) if path is not None else "/nowhere",
        }
        argv = [sys.executable, *command, str(MONITOR), "--node=here", *options]
        if command:
            argv.insert(1 + len(command), sys.executable)
        self.process = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.read = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.read.append(parse_line(line, received=0.0, container="monitor"))

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the sampler never said it"
            assert self.reader.is_alive(), f"the sampler ended: {self.process.stderr.read()}"
            time.sleep(0.02)

    def events(self, name):
        return [event for event in list(self.read) if getattr(event, "event", None) == name]

    def troubles(self, device):
        """{reason: fields} of a device."""
        return {trouble.reason: list(trouble.fields) for trouble in self.events("trouble") if trouble.device == device}

    def rows_of(self, device, at_least):
        """Rows of a device without null values, once there are so many."""
        self.wait_for(lambda: len(self._rows(device)) >= at_least)
        return self._rows(device)

    def _rows(self, device):
        tables = [table.columns for table in list(self.read) if isinstance(table, Rows)]
        rows = [
            dict(zip(table, values, strict=True)) for table in tables for values in zip(*table.values(), strict=True)
        ]
        return [
            {name: value for name, value in row.items() if value is not None} for row in rows if row["device"] == device
        ]

    def close(self):
        """Stop it by closing its input; return its exit code."""
        self.process.stdin.close()
        return self._ended()

    def terminate(self):
        """Stop it by SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self):
        code = self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        assert self.process.stderr.read() == ""
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
