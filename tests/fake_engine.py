"""A fake engine: answers the few Docker API requests of a test, on a unix socket or over TLS."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

VERSION = {"Version": "99.1", "ApiVersion": "1.41"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        name = "/" + path.rpartition("/")[2]
        answer = self.server.answers.get(name)
        if answer is None:
            body, status = json.dumps({"message": f"no {name}"}).encode(), 404
        else:
            body, status = json.dumps(answer() if callable(answer) else answer).encode(), 200
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the standard library's name

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass

    def address_string(self):
        return "client"


class _Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        """Ignore clients that hang up because they do not trust the certificate, which the test expects."""


@contextlib.contextmanager
def engine(socket: Path, answers: dict | None = None):
    """Serve on a unix socket."""
    server = _Unix(str(socket), _Handler)
    with _serving(server, answers):
        yield server


@contextlib.contextmanager
def tls_engine(context, answers: dict | None = None):
    """Serve on a TCP port of this machine, and yield the port."""
    server = _Tcp(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with _serving(server, answers):
        yield server.server_address[1]


@contextlib.contextmanager
def _serving(server, answers):
    server.answers = {"/version": VERSION, "/_ping": "OK", **(answers or {})}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
