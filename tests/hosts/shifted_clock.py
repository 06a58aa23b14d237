"""An engine's socket with a shifted clock: bytes pass unmodified, except `SystemTime` in /info."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
from datetime import datetime, timedelta
from pathlib import Path

KEY = b'"SystemTime":"'
_TIME = re.compile(rb'("SystemTime":")([^".]+)')


def shifted(answer: bytes, by_s: float) -> bytes:
    """Shift the time in an answer by whole seconds; its length does not change."""

    def move(found):
        moment = datetime.fromisoformat(found[2].decode().removesuffix("Z")) + timedelta(seconds=by_s)
        return found[1] + moment.isoformat(timespec="seconds").encode()

    return _TIME.sub(move, answer)


class _Handler(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(str(self.server.engine))
            threading.Thread(target=self._answers, args=(engine,), daemon=True).start()
            with contextlib.suppress(OSError):
                while data := self.request.recv(1 << 16):
                    engine.sendall(data)

    def _answers(self, engine):
        with contextlib.suppress(OSError):
            while data := engine.recv(1 << 20):
                # Never split the pattern between two reads.
                while KEY in data[-64:] or any(data.endswith(KEY[:length]) for length in range(2, len(KEY))):
                    data += engine.recv(1 << 20)
                self.request.sendall(shifted(data, self.server.by_s))
            self.request.shutdown(socket.SHUT_WR)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def shifted_clock(engine: Path, near: Path, *, by_s: float):
    """Serve at `near` the engine at `engine`, with its clock shifted."""
    server = _Server(str(near), _Handler)
    server.engine, server.by_s = engine, by_s
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
