"""Volumes that are filled over an engine's connection. Prevents: files with other owners or modes than requested, a container or a partial
volume left behind when an engine refuses, a container that is started only to hold files.
"""

import io
import tarfile
from types import SimpleNamespace

import pytest
from docker.errors import APIError

from runner.engines import owner, volumes
from runner.engines.base import EngineError
from runner.engines.volumes import File


class Api:
    """Records calls; the call named `fails` raises."""

    def __init__(self, fails=None):
        self.fails, self.calls, self.archive = fails, [], None

    def _call(self, name, *what):
        self.calls.append((name, *what))
        if name == self.fails:
            raise APIError("refused", explanation="no space left on device")

    def create_host_config(self, **options):
        return options

    def create_volume(self, name, labels):
        self._call("create_volume", name, labels)

    def create_container(self, image, command, *, name, labels, host_config):
        self._call("create_container", image, name, labels, host_config)
        return {"Id": "holder"}

    def put_archive(self, container, path, data):
        self.archive = data
        self._call("put_archive", container, path)

    def remove_container(self, container, force):
        self._call("remove_container", container)

    def remove_volume(self, name, force):
        self._call("remove_volume", name)


def fill(api):
    volumes.fill(
        SimpleNamespace(api=api),
        name="run-programs",
        image="some:image",
        files={"id": File(b"secret", mode=0o600, uid=10001), "deep/er.py": File(b"pass")},
        labels={"a": "b"},
    )


def test_files_arrive_with_their_owners_and_modes():
    api = Api()
    fill(api)
    with tarfile.open(fileobj=io.BytesIO(api.archive)) as tar:
        found = {
            (m.name, m.mode, m.uid, m.gid, None if m.isdir() else tar.extractfile(m).read()) for m in tar.getmembers()
        }
    assert found == {
        ("deep", 0o755, 0, 0, None),
        ("deep/er.py", 0o644, 0, 0, b"pass"),
        ("id", 0o600, 10001, 10001, b"secret"),
    }


def test_no_container_is_started_and_only_the_volume_stays():
    api = Api()
    fill(api)
    labels = owner.signed({"a": "b"})
    mounted = {"binds": {"run-programs": {"bind": "/volume", "mode": "rw"}}, "network_mode": "none"}
    assert api.calls == [
        ("create_volume", "run-programs", labels),
        ("create_container", "some:image", "run-programs-fill", labels, mounted),
        ("put_archive", "holder", "/volume"),
        ("remove_container", "holder"),
    ]


@pytest.mark.parametrize("fails", ["create_volume", "create_container", "put_archive"])
def test_an_engines_refusal_is_quoted_and_nothing_is_left_there(fails):
    api = Api(fails)
    with pytest.raises(EngineError, match=r"^the volume run-programs could not be filled \(no space left on device\)$"):
        fill(api)
    assert ("remove_volume", "run-programs") in api.calls
    volumes.remove(SimpleNamespace(api=Api("remove_volume")), "run-programs")  # a missing volume is no error
    assert (("remove_container", "holder") in api.calls) == (fails == "put_archive")
