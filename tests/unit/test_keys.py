"""Keys of a run. Prevents: a key that ssh can't read, one key for two runs, the key that opens every node lying on all of them, a key
that anybody may read or that a traceback shows, keys that are left when a node refuses them or the run fails.
"""

import shutil
import subprocess

import examples
import pytest
from test_launch_horovod import CASES

from runner import keys
from runner.engines import volumes
from runner.engines.base import EngineError
from runner.engines.docker import DockerEngine
from runner.launch import ssh

JOB = CASES["mxnet-horovod-gloo-2-nodes"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_openssh_reads_a_pair_and_finds_that_its_halves_belong_together(tmp_path):
    pair = keys.make_pair()
    path = tmp_path / "id"
    path.write_bytes(pair.private)
    path.chmod(0o600)
    found = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == pair.public
    assert pair.public.startswith("ssh-ed25519 ")


def test_no_two_pairs_are_equal_and_none_shows_its_private_half():
    one, other = keys.make_pair(), keys.make_pair()
    assert one.private != other.private
    assert "PRIVATE" not in f"{one} {one!r} {volumes.File(one.private)!r}"


def test_each_node_has_what_it_needs_and_no_more():
    user, host = keys.make_pair(), keys.make_pair()
    found = keys.files(JOB, user=user, host=host)
    assert {node: sorted(files) for node, files in found.items()} == {
        "n1": ["id", "known_hosts", "ssh_config"],
        "n2": ["authorized_keys", "host"],
    }
    assert found["n1"]["id"].content == user.private
    assert found["n2"]["host"].content == host.private
    assert found["n2"]["authorized_keys"].content.decode().split() == user.public.split()
    assert host.public in found["n1"]["known_hosts"].content.decode()
    assert {(file.mode, file.uid) for files in found.values() for file in files.values()} == {(0o600, 10001)}


@pytest.fixture
def engines(monkeypatch):
    """Two engines that note what they are asked for; `n2` can be made to refuse."""
    asked = []
    made = {node: DockerEngine.__new__(DockerEngine) for node in ("n1", "n2")}
    for node, engine in made.items():
        engine.client = node

    def fill(client, *, name, image, files, labels):
        asked.append(("fill", client, name, tuple(sorted(files)), dict(labels)))
        if client in made.get("refusing", ()):
            raise EngineError("no space left on device")
        if client in made.get("interrupted", ()):
            raise KeyboardInterrupt

    monkeypatch.setattr(volumes, "fill", fill)
    monkeypatch.setattr(volumes, "remove", lambda client, name: asked.append(("remove", client, name)))
    return made, asked


LABELS = {"dlscale.run-id": "run-1"}
HEAD_FILES, OTHER_FILES = ("id", "known_hosts", "ssh_config"), ("authorized_keys", "host")


def test_keys_are_there_for_the_run_and_gone_after_it_even_if_it_fails(engines):
    made, asked = engines
    with pytest.raises(KeyboardInterrupt), keys.handed_out(JOB, made):
        raise KeyboardInterrupt
    assert asked[:2] == [
        ("fill", "n1", "dlscale-run-1-keys", HEAD_FILES, LABELS),
        ("fill", "n2", "dlscale-run-1-keys", OTHER_FILES, LABELS),
    ]
    assert sorted(asked[2:]) == [("remove", "n1", "dlscale-run-1-keys"), ("remove", "n2", "dlscale-run-1-keys")]


def test_a_node_that_refuses_is_named_and_the_others_lose_theirs(engines):
    made, asked = engines
    made["refusing"] = ("n2",)
    with pytest.raises(EngineError, match="^n2: no space left on device$"), keys.handed_out(JOB, made):
        pytest.fail("a run without keys")
    assert ("remove", "n1", "dlscale-run-1-keys") in asked[2:]


def test_ctrl_c_while_keys_are_on_their_way_leaves_none(engines):
    made, asked = engines
    made["interrupted"] = ("n2",)
    with pytest.raises(KeyboardInterrupt), keys.handed_out(JOB, made):
        pytest.fail("a run without keys")
    assert sorted(asked[2:]) == [("remove", "n1", "dlscale-run-1-keys"), ("remove", "n2", "dlscale-run-1-keys")]


def test_nodes_of_one_engine_share_one_volume(engines):
    made, asked = engines
    with keys.handed_out(JOB, {"n1": made["n1"], "n2": made["n1"]}):
        pass
    files = tuple(sorted(HEAD_FILES + OTHER_FILES))
    assert asked == [
        ("fill", "n1", "dlscale-run-1-keys", files, LABELS),
        ("remove", "n1", "dlscale-run-1-keys"),
    ]


def test_a_job_on_one_node_gets_none(engines):
    made, asked = engines
    with keys.handed_out(examples.job(examples.trial()), {"here": made["n1"]}):
        assert asked == []


def test_containers_find_them_where_ssh_and_sshd_look():
    assert ssh.keys(JOB).target == "/dlscale/keys"
    config = (examples.ROOT / "workloads" / "sshd_config").read_text()
    assert "HostKey /dlscale/keys/host\n" in config
    assert "AuthorizedKeysFile /dlscale/keys/authorized_keys\n" in config
    template = (examples.ROOT / "images" / "templates" / "horovod.Dockerfile.j2").read_text()
    assert "Include /dlscale/keys/ssh_config" in template
