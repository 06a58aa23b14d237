"""Connections to the engines of other machines, with a fake ssh and an engine that answers a few requests.

Prevents: an unreachable node that is reported without its name and the reason; an ssh that outlives a killed runner and keeps its forwarding;
a tunnel that dies with the thread that opened it; a tunnel that shares a connection of the user's; CAs of the environment trusted in place
of the one in the hosts file.
"""

import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from fake_engine import VERSION, engine, tls_engine

from runner.cluster.hosts import endpoint
from runner.cluster.hosts.endpoint import connect, engine_sentence, ssh_argv, ssh_sentence
from runner.cluster.hosts.model import Endpoint, Host, Tls
from runner.core.errors import RequestError
from runner.engines import docker

ROOT = Path(__file__).parents[3]

# A fake ssh: forwards `-L NEAR:FAR` between the two sockets until it is killed.
FAKE_SSH = f"""#!{sys.executable}
import os, socket, sys, threading, time
near, far = sys.argv[sys.argv.index("-L") + 1].split(":")
print("Warning: this is no ssh", file=sys.stderr, flush=True)
open(os.environ["FAKE_SSH_PID"], "w").write(str(os.getpid()))
server = socket.socket(socket.AF_UNIX)
server.bind(near)
time.sleep(0.2)  # as long as a busy machine may leave it refusing connections
server.listen()
def carry(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    b.close()
while True:
    client, _ = server.accept()
    remote = socket.socket(socket.AF_UNIX)
    try:
        remote.connect(far)
    except OSError:
        print("channel 2: open failed: connect failed: open failed", file=sys.stderr, flush=True)
        client.close()
        continue
    threading.Thread(target=carry, args=(client, remote), daemon=True).start()
    threading.Thread(target=carry, args=(remote, client), daemon=True).start()
"""


def host(url, **changes):
    return Host(name="n1", endpoint=Endpoint(url=url, **changes))


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """Replace ssh; returns a function that installs a program as ssh and returns the file that gets its process id."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH_PID", str(tmp_path / "pid"))

    def does(program):
        (folder / "ssh").write_text(program, encoding="utf-8")
        (folder / "ssh").chmod(0o755)
        return tmp_path / "pid"

    return does


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid):
    deadline = time.monotonic() + 30
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def refusal(of):
    with pytest.raises(RequestError) as caught:
        connect(of)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_tunnels_command_line():
    whole = Endpoint(url="ssh://bench@N1:2222/run/docker.sock", ssh_config=Path("/etc/rig"))
    argv = ssh_argv(whole, socket=Path("/tmp/x/engine.sock"))
    assert argv[:2] == ("ssh", "-nNTax")
    assert argv[-8:] == (
        *("-L", "/tmp/x/engine.sock:/run/docker.sock"),
        *("-F", "/etc/rig", "-p", "2222", "--", "bench@N1"),
    )
    options = {argv[i + 1] for i, word in enumerate(argv) if word == "-o"}
    assert {"BatchMode=yes", "ExitOnForwardFailure=yes", "ServerAliveInterval=5", "ControlPath=none"} <= options
    assert ssh_argv(Endpoint(url="ssh://n1"), socket=Path("/s"))[-4:] == ("-L", "/s:/var/run/docker.sock", "--", "n1")


def test_a_tunnel_carries_the_client_and_ends_with_the_connection(tmp_path, ssh):
    pid_file = ssh(FAKE_SSH)
    far = tmp_path / "far.sock"
    with engine(far), closing(connect(host(f"ssh://n1{far}"))) as connection:
        assert connection.client.version() == VERSION
        assert connection.lost is None
        pid = int(pid_file.read_text())
        near = connection.client.api.base_url
        assert alive(pid)
    assert gone(pid)
    assert near
    connection.close()


def test_a_tunnel_outlives_the_thread_that_opened_it(tmp_path, ssh):
    """The kernel's parent-death signal fires when a thread ends, and survey() connects from threads."""
    ssh(FAKE_SSH)
    far = tmp_path / "far.sock"
    found = []
    with engine(far):
        thread = threading.Thread(target=lambda: found.append(connect(host(f"ssh://n1{far}"))))
        thread.start()
        thread.join()
        time.sleep(0.2)
        assert found[0].client.version() == VERSION
        found[0].close()


def test_a_lost_tunnel_is_reported_in_sshs_words(tmp_path, ssh):
    pid_file = ssh(FAKE_SSH)
    far = tmp_path / "far.sock"
    with engine(far), closing(connect(host(f"ssh://n1{far}"))) as connection:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        deadline = time.monotonic() + 30
        while connection.lost is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert connection.lost == "Warning: this is no ssh"


@pytest.fixture
def short():
    """A folder for the remains of a killed process; a socket's path in pytest's own folder would be too long."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def test_ssh_ends_when_the_runner_is_killed(tmp_path, ssh, short):
    """An orphaned tunnel keeps the leases of the node's jobs open, so that they never end."""
    pid_file = ssh(FAKE_SSH)
    far = tmp_path / "far.sock"
    code = (
        "import sys, time; from runner.cluster.hosts.endpoint import connect; from runner.cluster.hosts.model import *;"
        f"c = connect(Host(name='n1', endpoint=Endpoint(url='ssh://n1{far}'))); print('up', flush=True); time.sleep(600)"
    )
    with engine(far):
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": short},
        )
        assert child.stdout.readline() == "up\n"
        pid = int(pid_file.read_text())
        assert alive(pid)
        child.kill()
        child.communicate()
        assert gone(pid)


def test_a_remote_socket_without_a_listener_is_explained(tmp_path, ssh):
    ssh(FAKE_SSH)
    said = refusal(host(f"ssh://n1{tmp_path}/none.sock"))
    assert said.startswith(f"n1: no engine listens at {tmp_path}/none.sock there")
    assert "open failed: connect failed" in said
    assert "start dockerd" in said


def test_a_missing_ssh_is_explained(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no ssh on this machine" in refusal(host("ssh://n1"))


def test_an_ssh_that_hangs_times_out_and_is_killed(ssh, monkeypatch, tmp_path):
    monkeypatch.setattr(endpoint, "_LOGIN_S", 0.5)
    pid_file = ssh('#!/bin/sh\necho $$ > "$FAKE_SSH_PID"\nexec sleep 600\n')
    said = refusal(host("ssh://bench@n1:2222"))
    assert (
        said == "n1: ssh got no answer (no answer after 0.5 s); see what it waits for: `ssh -p 2222 -- bench@n1 true`"
    )
    assert gone(int(pid_file.read_text()))


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("bench@n1: Permission denied (publickey).", "without a password"),
        ("ssh: connect to host n1 port 22: Connection refused", "no sshd listens there (ssh: connect to host"),
        ("No ED25519 host key is known for n1\nHost key verification failed.", "its host key is unknown here"),
        ("REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "its host key has changed"),
        ("ssh: connect to host n1 port 22: No route to host", "there is no route to it"),
        ("ssh: connect to host n1 port 22: Connection timed out", "it does not answer"),
        ("ssh: Could not resolve hostname n1: Name or service not known", "its name does not resolve"),
        ("something that nobody has seen before", "ssh fails (something that nobody has seen before)"),
        ("", "without output"),
    ],
)
def test_errors_of_ssh_are_explained(stderr, expected):
    said = ssh_sentence(host("ssh://n1"), stderr)
    assert said.startswith("n1: ")
    assert expected in said
    assert "; " in said


@pytest.mark.parametrize(
    ("error", "stderr", "expected"),
    [
        ("FileNotFoundError(2, 'No such file')", "", "its socket does not exist (ssh://n1)"),
        ("PermissionError(13, 'Permission denied')", "", "this user may not use its socket"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "", "not signed by the CA in `ca`"),
        ("Read timed out. (read timeout=10)", "", "accepts the connection but does not answer"),
        ("Connection aborted", "channel 3: open failed: administratively prohibited", "its sshd forwards no sockets"),
        ("a fault that nobody has seen before", "", "(a fault that nobody has seen before)"),
    ],
)
def test_errors_of_an_engine_are_explained(error, stderr, expected):
    said = engine_sentence(host("ssh://n1"), error, stderr=stderr)
    assert said.startswith("n1: ")
    assert expected in said


def test_a_local_socket_needs_no_tunnel(tmp_path):
    with engine(tmp_path / "e.sock"), closing(connect(host(f"unix://{tmp_path}/e.sock"))) as connection:
        assert connection.client.version() == VERSION
        assert connection.lost is None
    assert "its socket does not exist" in refusal(host(f"unix://{tmp_path}/none.sock"))


def test_an_engine_that_accepts_but_never_answers_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(docker, "_ANSWER_S", 0.5)
    never = threading.Event()
    with engine(tmp_path / "e.sock", {"/version": lambda: never.wait(30)}):
        said = refusal(host(f"unix://{tmp_path}/e.sock"))
        never.set()
    assert "accepts the connection but does not answer" in said


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A CA with a server's and a client's certificate, and a second CA that nobody trusts."""
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    def request(name, *words):
        openssl("req", "-newkey", "ed25519", "-nodes", "-keyout", f"{name}.key", "-subj", f"/CN={name}", *words)

    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make certificates with")
    for name in ("ca", "other"):
        request(name, "-x509", "-out", f"{name}.pem")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        request(name, "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "san")
        openssl("x509", "-req", *signed, "-in", f"{name}.csr", "-out", f"{name}.pem")
    return folder


@pytest.fixture
def port(keys):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    context.load_verify_locations(keys / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with tls_engine(context) as port:
        yield port


@pytest.mark.parametrize("bundle", [None, "other.pem"])
def test_the_hosts_files_ca_is_trusted_whatever_the_environment_says(keys, port, monkeypatch, bundle):
    """REQUESTS_CA_BUNDLE, set on every machine behind a TLS-inspecting proxy, overrides a session's `verify`."""
    if bundle:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(keys / bundle))
    else:
        monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    tls = Tls(ca=keys / "ca.pem", cert=keys / "client.pem", key=keys / "client.key")
    with closing(connect(host(f"tcp://127.0.0.1:{port}", tls=tls))) as connection:
        assert connection.client.version() == VERSION


@pytest.mark.parametrize(
    ("ca", "cert", "said"),
    [
        ("other", "client", "not signed by the CA in `ca`"),
        # Whether its alert reaches us before it closes the connection is a race.
        ("ca", "other", "correct `tls`"),
        ("ca", "absent", "absent.pem does not exist; correct `tls` in the hosts file"),
    ],
)
def test_wrong_certificates_are_refused(keys, port, ca, cert, said):
    tls = Tls(ca=keys / f"{ca}.pem", cert=keys / f"{cert}.pem", key=keys / f"{cert.replace('absent', 'other')}.key")
    assert said in refusal(host(f"tcp://127.0.0.1:{port}", tls=tls))


def test_a_missing_ssh_configuration_is_refused(tmp_path):
    said = refusal(host("ssh://n1", ssh_config=tmp_path / "absent"))
    assert said == f"n1: {tmp_path / 'absent'} does not exist; correct `ssh_config` in the hosts file"
