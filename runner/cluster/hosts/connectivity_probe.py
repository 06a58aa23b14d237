"""One node's part in the check that every pair of nodes can reach each other: it listens, and calls all others concurrently.

    python3 -c "$(cat connectivity_probe.py)" '{"name": ..., "iface": ..., "address": ..., "port": ..., "peers": {NAME: [ADDRESS, PORT]}, "seconds": ...}'

Runs in a container of the suite's base with the node's network, or by a command, so it is one file that needs only the standard library. Both ends
are bound to the tested interface. Each call carries more than one packet of any common size, since with different MTUs a handshake
succeeds but larger packets are lost. Prints one line of JSON: the interface's state, and for each peer None or the reason why it was not
reached.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

PAYLOAD = bytes(1 << 18)
CALL_S = 4.0
PAUSE_S = 0.2


def bound_socket(task: dict[str, Any], port: int) -> socket.socket:
    """A socket bound to the node's own end of the wire; raises OSError."""
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with contextlib.suppress(OSError):  # before Linux 5.7 this needs a capability that the container lacks
        end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, task["iface"].encode())
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.bind((task["address"], port))
    return end


def answer(call: socket.socket, callers_heard: set[str]) -> None:
    """Take one call: read a line with the caller's name and the payload, then send one byte back."""
    with call, contextlib.suppress(OSError):
        call.settimeout(CALL_S)
        received = b""
        while len(received.partition(b"\n")[2]) < len(PAYLOAD):
            block = call.recv(1 << 16)
            if not block:
                return
            received += block
        call.sendall(b"!")
        callers_heard.add(received.partition(b"\n")[0].decode())


def listen(server: socket.socket, callers_heard: set[str]) -> None:
    """Take calls until the program ends."""
    while True:
        call, _ = server.accept()
        threading.Thread(target=answer, args=(call, callers_heard), daemon=True).start()


def call_once(task: dict[str, Any], address: str, port: int) -> str | None:
    """Call a peer: None if it answered, else why not."""
    step = "connecting"
    try:
        with bound_socket(task, 0) as call:
            call.settimeout(CALL_S)
            call.connect((address, port))
            step = "sending"
            call.sendall(task["name"].encode() + b"\n" + PAYLOAD)
            if call.recv(1):
                return None
            return "it hangs up"
    except socket.timeout:  # noqa: UP041 - not TimeoutError before Python 3.10
        if step == "connecting":
            return "no answer"
        return "it accepts the connection, but large packets do not arrive: compare the MTUs of both ends and of the switches in between"
    except OSError as error:
        return error.strerror or str(error)


def reach(task: dict[str, Any], peer: str, results: dict[str, str | None], deadline: float) -> None:
    """Call a peer until it answers or time is up; its listener may start later than this program."""
    address, port = task["peers"][peer]
    while True:
        results[peer] = call_once(task, address, port)
        if results[peer] is None or time.monotonic() + PAUSE_S > deadline:
            return
        time.sleep(PAUSE_S)


def main(task: dict[str, Any]) -> None:
    """Call every peer, and print which ones were reached."""
    deadline = time.monotonic() + task["seconds"]
    callers_heard: set[str] = set()
    results: dict[str, str | None] = dict.fromkeys(task["peers"], "no answer")
    trouble = None
    try:
        server = bound_socket(task, task["port"])
        server.listen(len(results) + 1)
    except OSError as error:
        trouble = f"it can't listen at {task['address']}:{task['port']} ({error.strerror})"
    else:
        threading.Thread(target=listen, args=(server, callers_heard), daemon=True).start()
    callers = [
        threading.Thread(target=reach, args=(task, peer, results, deadline), daemon=True) for peer in task["peers"]
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(max(0.0, deadline - time.monotonic()) + CALL_S)
    while trouble is None and not set(task["peers"]) <= callers_heard and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        state = Path("/sys/class/net", task["iface"], "operstate").read_text(encoding="ascii").strip()
    except OSError:
        state = "missing"
    print(json.dumps({"state": state, "trouble": trouble, "results": results}), flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
