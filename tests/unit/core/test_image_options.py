"""MOUNT, and options combined with a user's image.

Prevents: a mount that hides the programs, the kernel's files or another mount, or of a folder that does not exist; options that are
ignored with an image; an image without anything to run in it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from runner.commands.cli import app
from runner.core import parsing
from runner.core.container_spec import Mount
from runner.core.contradictions import refuse_contradictions
from runner.core.errors import RequestError
from runner.core.request import Request
from runner.run import bench

IMAGE = {"image": "corp/net:7"}
TRAINS = {**IMAGE, "framework": "pytorch"}
OPT = Mount(source="/opt", target="/opt")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a folder, a file and a link to the folder in it, as the working directory."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "one.conf").touch()
    (tmp_path / "link").symlink_to("venv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("nothing", [None, [], [""], [" , "]])
def test_no_mounts_are_none(nothing):
    assert parsing.mounts(nothing) is None


def test_mounts_are_separated_by_commas_or_repeated(here):
    assert parsing.mounts([f"{here}/venv:/venv/, venv/../link:/opt/x/../y", "one.conf:/etc/one.conf"]) == (
        Mount(source=f"{here}/venv", target="/venv"),
        Mount(source=f"{here}/link", target="/opt/y"),  # the link's own name, not its target
        Mount(source=f"{here}/one.conf", target="/etc/one.conf"),
    )


def test_the_target_of_a_mount_defaults_to_its_source(monkeypatch):
    monkeypatch.chdir("/usr")
    assert parsing.mounts(["/usr/bin", "lib/"]) == (
        Mount(source="/usr/bin", target="/usr/bin"),
        Mount(source="/usr/lib", target="/usr/lib"),
    )
    # A name that only starts like a reserved one is allowed.
    found = parsing.mounts(["/usr/bin:/device,/usr/lib:/tmpfiles"])
    assert [(mount.target, mount.read_only) for mount in found] == [("/device", True), ("/tmpfiles", True)]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["gone:/opt"], "/gone does not exist; give a folder or file of this machine"),
        (["venv:opt/venv"], "MOUNT=venv:opt/venv: opt/venv is not an absolute path; give one in the container with"),
        (["venv:/"], "MOUNT=venv:/: / is reserved, as are /, /proc, /sys, /dev, /tmp, /dlscale and"),
        (["venv:/opt/.."], "MOUNT=venv:/opt/..: / is reserved"),
        (["venv:/dlscale/data"], "MOUNT=venv:/dlscale/data: /dlscale/data is reserved"),
        (["venv:/usr/../proc/1"], "MOUNT=venv:/usr/../proc/1: /proc/1 is reserved"),
        (["venv:/dev/shm"], "MOUNT=venv:/dev/shm: /dev/shm is"),
        (["venv:/a", "one.conf:/a/"], "at /a; give each a target of its own"),
        (["venv:/a:ro"], "MOUNT=venv:/a:ro is not SRC or SRC:DST; mounts are read-only anyway, type for example"),
        (["venv:"], "MOUNT=venv: is not SRC or SRC:DST"),
        ([":/a"], "MOUNT=:/a is not SRC or SRC:DST"),
    ],
)
def test_an_impossible_mount_is_refused_in_one_sentence(here, texts, says):
    with pytest.raises(RequestError) as caught:
        parsing.mounts(texts)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=3))
def test_any_text_is_refused_or_gives_distinct_absolute_paths(texts):
    try:
        found = parsing.mounts(texts) or ()
    except RequestError as error:
        assert str(error).startswith("MOUNT")
    else:
        assert all(mount.source.startswith("/") and mount.target.startswith("/") for mount in found)
        assert len({mount.target for mount in found}) == len(found)


@pytest.mark.parametrize(
    "asked",
    [
        TRAINS,
        {**TRAINS, "mounts": (OPT,), "gpus": (1, 2), "model": "resnet50", "precision": "bf16", "engine": "docker"},
        {**TRAINS, "hosts": "a:4,b:4"},
        {**TRAINS, "nodes": 2, "links": (None,), "mounts": (OPT,)},
        {**IMAGE, "command": ("x",), "mounts": (OPT,)},
    ],
)
def test_compatible_options_are_accepted(asked):
    refuse_contradictions(Request.model_validate(asked))


@pytest.mark.parametrize(
    ("words", "command"), [(["--framework=pytorch"], ()), (["--", "python3", "train.py"], ("python3", "train.py"))]
)
def test_a_command_replaces_the_suites_program_in_an_image(monkeypatch, words, command):
    asked = []
    monkeypatch.setattr(bench, "dry_run", lambda request: asked.append(request) or 0)
    # As make passes several, and as users type them.
    shown = ["--mount=/usr:/usr,/bin:/opt/bin", "--mount", "/etc"]
    done = CliRunner().invoke(app, ["bench", "--dry-run", "--image=corp/net:7", *shown, *words])
    assert done.exit_code == 0, done.output
    (request,) = asked
    assert (request.command or ()) == command
    assert request.image == "corp/net:7"
    mounts = [(mount.source, mount.target) for mount in request.mounts]
    assert mounts == [("/usr", "/usr"), ("/bin", "/opt/bin"), ("/etc", "/etc")]
