"""Prevents: a base that differs between machines or days for the same packages, one that reveals the source of its packages, packages from a third
party's source, and no advice for a user if neither a registry nor a mirror answers.

Prevents: an image of Debian packages silently made of other versions than its lock names, and an error that names neither the package nor
the remedy.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from docker.errors import APIError, ImageNotFound

from runner.core.errors import DlscaleError, RequestError
from runner.engines import images as engine_images
from runner.engines.images import Answer
from runner.engines.process import CommandError
from runner.images import base
from runner.images import base as bases
from runner.images.base import (
    apt_transport,
    build_archive,
    check_packages,
    debian_sources,
    ensure_base,
    mmdebstrap,
    write_image,
    write_packages,
)
from runner.images.catalog import load_images
from runner.images.lock import check_lock

CATALOG = load_images(Path(__file__).parents[3])
BASE = next(base for base in CATALOG.bases if base.name == "bookworm")
LABELS = {"dlscale.base": "mirror"}


def a_root(path: Path, content: bytes = b"tree=1\n") -> Path:
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo(f"./{bases.PACKAGE_LIST}")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return path


def wrapped(tmp_path: Path, root: Path, name: str) -> tuple[str, bytes]:
    target = tmp_path / name
    identifier = write_image(root=root, target=target, reference="dlscale/base:x", labels=LABELS, created_s=86400)
    return identifier, target.read_bytes()


def test_the_same_root_yields_the_same_image_byte_for_byte(tmp_path):
    root = a_root(tmp_path / "root.tar")
    once = wrapped(tmp_path, root, "one")
    root.touch()
    assert wrapped(tmp_path, root, "two") == once
    assert wrapped(tmp_path, a_root(tmp_path / "other.tar", b"tree=2\n"), "three")[0] != once[0]


def test_an_image_archive_has_the_format_that_engines_load(tmp_path):
    root = a_root(tmp_path / "root.tar")
    identifier, _ = wrapped(tmp_path, root, "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        content = {entry.name: tar.extractfile(entry).read() for entry in tar}
    (manifest,) = json.loads(content["manifest.json"])
    assert manifest["RepoTags"] == ["dlscale/base:x"]
    config = content[manifest["Config"]]
    assert f"sha256:{hashlib.sha256(config).hexdigest()}" == identifier
    (layer,) = manifest["Layers"]
    assert content[layer] == root.read_bytes()
    read = json.loads(config)
    assert read["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(root.read_bytes()).hexdigest()}"]}
    assert read["created"] == "1970-01-02T00:00:00Z"
    assert read["config"]["Labels"] == LABELS


def test_mmdebstrap_gets_suite_and_packages_and_removes_traces_of_this_machine(tmp_path):
    argv = mmdebstrap(
        BASE, sources=("deb mirror bookworm main",), options=tmp_path / "apt.conf", target=tmp_path / "root.tar"
    )
    assert argv[0] == "mmdebstrap"
    assert argv[-3:] == ("bookworm", str(tmp_path / "root.tar"), "deb mirror bookworm main")
    assert f"--include={','.join(BASE.packages)}" in argv
    assert f"--aptopt={tmp_path / 'apt.conf'}" in argv
    (removing,) = [word for word in argv if "rm -rf" in word]
    leaks = {"etc/apt/sources.list", "etc/apt/sources.list.d/*", "etc/apt/apt.conf.d/99mmdebstrap", "etc/machine-id"}
    assert leaks | {"etc/ssh/ssh_host_*", "etc/resolv.conf", "var/log/*"} <= set(removing.split())


INDEXTARGETS = """\
Debian main bookworm http://mirror/debian/
Debian main bookworm-updates http://mirror/debian/
Debian main bookworm-security http://mirror/security/
Debian main bookworm-backports http://mirror/debian/
Debian non-free bookworm http://mirror/debian/
Debian main trixie http://mirror/debian/
Somebody main bookworm http://third.party/
"""


def test_only_debians_own_sources_of_the_suite_are_used(monkeypatch):
    """A third party's repository may call itself `bookworm main` too."""
    monkeypatch.delenv(bases.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(bases.process, "run", lambda _: INDEXTARGETS)
    assert debian_sources("bookworm") == (
        "deb http://mirror/debian/ bookworm main",
        "deb http://mirror/debian/ bookworm-updates main",
        "deb http://mirror/security/ bookworm-security main",
    )
    assert debian_sources("trixie") == ("deb http://mirror/debian/ trixie main",)


def a_machine(monkeypatch, *, has):
    """A machine with the sources above, whose mirrors have these releases; returns the requests to them."""
    asked = []

    def run(argv):
        if argv[0] == "apt-get":
            return INDEXTARGETS
        asked.append(argv[2])
        if argv[2] not in [f"{place}/InRelease" for place in has]:
            raise CommandError(argv, 100, "404  Not Found")
        return ""

    monkeypatch.delenv(bases.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(bases.process, "run", run)
    return asked


def test_another_suite_comes_from_the_mirrors_of_the_machines_own(monkeypatch):
    """Mirrors keep all suites side by side; a missing part is left out, and so is a third party's."""
    asked = a_machine(
        monkeypatch, has=["http://mirror/debian/dists/bullseye", "http://mirror/security/dists/bullseye-security"]
    )
    assert debian_sources("bullseye") == (
        "deb http://mirror/debian/ bullseye main",
        "deb http://mirror/security/ bullseye-security main",
    )
    assert "http://mirror/debian/dists/bullseye-updates/InRelease" in asked
    assert not [address for address in asked if "backports" in address or "third.party" in address]


@pytest.mark.parametrize(
    "has", [[], ["http://mirror/security/dists/bullseye-security"], None], ids=["none", "fixes", "no apt"]
)
def test_a_missing_source_of_the_suite_is_an_error_with_a_remedy(monkeypatch, has):
    """A suite's fixes without the suite itself are not a source."""
    a_machine(monkeypatch, has=has or [])
    if has is None:
        monkeypatch.setattr(
            bases.process, "run", lambda argv: (_ for _ in ()).throw(CommandError(argv, None, "not found"))
        )
        assert apt_transport() == ""
    with pytest.raises(RequestError, match=r"no source of Debian bullseye; run `apt-get update`, or set"):
        debian_sources("bullseye")
    monkeypatch.setenv(bases.MIRROR_VARIABLE, "http://chosen/debian")
    assert debian_sources("bullseye") == ("deb http://chosen/debian bullseye main",)


def test_apts_proxy_settings_are_passed_on_and_no_others(monkeypatch):
    dump = 'APT::Sandbox::User "_apt";\nAcquire::http::Proxy "http://user:secret@proxy";\nAcquire::Languages "none";\nAcquire::https::CaInfo "/ca";\n'
    monkeypatch.setattr(bases.process, "run", lambda _: dump)
    assert apt_transport() == 'Acquire::http::Proxy "http://user:secret@proxy";\nAcquire::https::CaInfo "/ca";\n'


@pytest.fixture
def no_apt(monkeypatch):
    monkeypatch.setattr(bases, "apt_transport", lambda: 'Acquire::http::Proxy "http://secret";\n')
    monkeypatch.setattr(bases, "debian_sources", lambda suite: (f"deb mirror {suite} main",))


@pytest.mark.usefixtures("no_apt")
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (CommandError(["mmdebstrap"], None, "mmdebstrap: not found"), "is not installed; install it (apt-get"),
        (
            CommandError(["mmdebstrap"], 25, "I: start\nE: Unable to locate package gone\nI: clean"),
            "(E: Unable to locate package gone)",
        ),
    ],
)
def test_a_failing_mirror_is_reported_in_one_sentence(tmp_path, monkeypatch, error, sentence):
    def follow(*_, **__):
        raise error

    monkeypatch.setattr(bases.process, "follow", follow)
    with pytest.raises(RequestError) as caught:
        build_archive(BASE, tmp_path / "image.tar", report=print)
    assert sentence in str(caught.value)
    assert list(tmp_path.iterdir()) == []  # the file with the proxy's password is gone


@pytest.mark.usefixtures("no_apt")
def test_the_archive_is_labelled_with_its_packages(tmp_path, monkeypatch):
    seen = {}

    def follow(argv, *, on_line, env):
        seen.update(env=env)
        a_root(Path(argv[-2]))
        on_line("I: installing")
        on_line("noise")

    monkeypatch.setattr(bases.process, "follow", follow)
    said: list[str] = []
    identifier = build_archive(BASE, tmp_path / "image.tar", report=said.append)
    assert said == ["making Debian bookworm with mmdebstrap, about a minute", "mmdebstrap: installing"]
    assert seen["env"]["SOURCE_DATE_EPOCH"] == "1735689600"
    with tarfile.open(tmp_path / "image.tar") as tar:
        config = json.load(tar.extractfile(f"{identifier.removeprefix('sha256:')}.json"))
    assert config["created"] == "2025-01-01T00:00:00Z"
    assert config["config"]["Labels"] == {
        "dlscale.base": "mirror",
        "dlscale.base.suite": "bookworm",
        "dlscale.base.packages.sha256": hashlib.sha256(b"tree=1\n").hexdigest(),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["image.tar"]


class Engine:
    """The part of the Docker client that `ensure_base` calls."""

    def __init__(self, held=None):
        self.held = held
        self.images = self.api = self

    def get(self, reference):
        if self.held is None:
            raise ImageNotFound(f"no {reference}")
        return type("Image", (), {"id": self.held})

    def load_image(self, file, *, quiet):
        self.held = f"loaded {len(file.read())}"
        return ()


def make(tmp_path, client, said, **options):
    return ensure_base(BASE, client=client, root=tmp_path, cache=tmp_path, report=said.append, **options)


def test_without_a_registry_the_mirror_is_used_and_its_base_cached(tmp_path, monkeypatch):
    built = []

    def build(base, target, *, report):
        built.append(base)
        target.write_bytes(bytes(10 * len(built)))
        return "sha256:x"

    monkeypatch.setattr(bases, "build_archive", build)
    monkeypatch.setattr(bases, "ask_registry", lambda _: Answer(None, "no such host"))
    said: list[str] = []
    client = Engine()
    assert make(tmp_path, client, said) == "loaded 10"
    assert said == [
        "no registry has debian:bookworm-slim (no such host); making Debian bookworm from this machine's mirror"
    ]
    assert make(tmp_path, client, said) == "loaded 10"
    assert make(tmp_path, Engine(), said) == "loaded 10"  # from the cache, as for a second engine
    assert len(built) == 1
    assert make(tmp_path, client, said, refresh=True) == "loaded 20"


def test_the_registry_is_queried_by_digest_and_its_silence_reported(monkeypatch):
    class Silent:
        def inspect_distribution(self, reference):
            assert reference == BASE.registry.pinned
            raise APIError(
                '500 Server Error: ("Get https://registry/v2/: dial tcp: lookup registry: no such host")',
                explanation="dial tcp: lookup registry: no such host",
            )

    monkeypatch.setattr(engine_images.docker, "connect", lambda *, timeout_s: type("Client", (), {"api": Silent()}))
    assert engine_images.ask_registry(BASE.registry.pinned) == Answer(None, "no such host")
    monkeypatch.setattr(Silent, "inspect_distribution", lambda *_: {"Descriptor": {"digest": "sha256:d"}})
    assert engine_images.ask_registry(BASE.registry.pinned) == Answer("sha256:d", None)


CAFFE = CATALOG.find("caffe", "1.0", "cpu")


@pytest.fixture
def image(tmp_path, monkeypatch):
    """Caffe's image in an empty checkout; its base exists, and has the packages that a test passes as the client."""

    def run(client, reference, argv, *, network):
        assert (reference, argv, network) == (CAFFE.base.reference, ("cat", "/usr/share/dlscale/packages.txt"), "none")
        return client

    monkeypatch.setattr(base, "run_confined", run)
    monkeypatch.setattr(base, "ensure_base", lambda *_, **__: "sha256:base")
    return CAFFE.model_copy(update={"directory": tmp_path / "images" / "caffe" / "1.0"})


def write(image, listed):
    return write_packages(image, client=listed, cache=Path(), report=print, upgrade=False)


def test_the_lock_is_the_bases_package_list_after_the_header(image):
    assert write(image, "apt=2.2.4\ncaffe=1.0\n") is True
    assert write(image, "apt=2.2.4\ncaffe=1.0\n") is False
    assert image.lock_path.read_text(encoding="utf-8").splitlines()[2:] == ["apt=2.2.4", "caffe=1.0"]
    check_lock(image)
    check_packages(image, client="apt=2.2.4\ncaffe=1.0\n")


@pytest.mark.parametrize(
    ("listed", "count", "difference"),
    [
        ("apt=2.2.5\ncaffe=1.0\n", 1, "apt: 2.2.5 instead of 2.2.4"),
        ("apt=2.2.4\n", 1, "caffe: nothing instead of 1.0"),
        ("apt=2.2.4\nbash=5\ncaffe=1.1\n", 2, "bash: 5 instead of nothing"),
    ],
)
def test_a_base_with_other_packages_is_refused_with_the_first_difference(image, listed, count, difference):
    write(image, "apt=2.2.4\ncaffe=1.0\n")
    with pytest.raises(RequestError) as caught:
        check_packages(image, client=listed)
    assert str(caught.value) == (
        f"{image.base.reference} differs in {count} packages from {image.lock_path} ({difference}); set DLSCALE_DEBIAN_MIRROR to a "
        f"mirror that has the locked ones and type `dlscale images base bullseye --refresh`, or accept these with "
        f"`dlscale images lock caffe:1.0`"
    )


def test_a_lock_of_other_packages_is_detected(image):
    write(image, "apt=2.2.4\n")
    other = image.base.model_copy(update={"packages": ("caffe=1.1",)})
    with pytest.raises(DlscaleError, match=r"packages.lock: is outdated, .*; run `dlscale images lock`"):
        check_lock(image.model_copy(update={"base": other}))


def test_every_package_pinned_in_versions_yaml_is_locked_in_that_version():
    locked = CAFFE.lock_path.read_text(encoding="utf-8").splitlines()
    assert set(CAFFE.base.packages) <= set(locked)
