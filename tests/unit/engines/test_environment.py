"""Prevents: a half-created environment taken for a complete one after Ctrl-C, packages other than the locked ones, a version manager's
shim taken for a Python, and the user's own PYTHONPATH leaking into a benchmark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from wheels import make_index, make_wheel

from runner.core.errors import RequestError
from runner.engines import process
from runner.engines.environment import ensure_environment, environment_python, find_interpreter

HERE = "{}.{}".format(*sys.version_info[:2])
THIS = f"=={HERE}.*"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder of wheels that is pip's only source."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return tmp_path / "wheels"


@pytest.fixture
def lock(tmp_path, source):
    _, sha256 = make_wheel(source, "tiny", "1.2")
    path = tmp_path / "requirements.lock"
    path.write_text(f"tiny==1.2 \\\n    --hash=sha256:{sha256}\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return tmp_path_factory.mktemp("template") / "venv"


@pytest.fixture
def copied(template, monkeypatch):
    """Create one virtual environment and copy it for all others: each would take 3 s."""
    real = process.run

    def run(argv, **options):
        if argv[1:3] != ["-m", "venv"]:
            return real(argv, **options)
        if not template.exists():
            real([*argv[:3], template], **options)
        shutil.copytree(template, argv[3], symlinks=True)
        return ""

    monkeypatch.setattr(process, "run", run)


def ensure(lock: Path, said: list[str], **others) -> Path:
    return ensure_environment(
        lock=lock, requires_python=THIS, cache=lock.parent / "cache", report=said.append, **others
    )


def run(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_has_the_locked_packages_and_is_created_once(lock, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(lock.parent))
    (lock.parent / "tiny.py").write_text("version = 'not the locked one'\n", encoding="utf-8")
    expected = environment_python(lock=lock, requires_python=THIS, cache=lock.parent / "cache")
    assert not expected.exists()
    said: list[str] = []
    python = ensure(lock, said)
    assert python == expected
    assert said == [
        f"creating a virtual environment with Python {HERE}",
        "fetching tiny-1.2-py3-none-any.whl",
        "installing 1 packages",
    ]
    monkeypatch.delenv("PYTHONPATH")
    assert run(python, "import tiny; print(tiny.version)") == "1.2"
    again: list[str] = []
    assert ensure(lock, again) == python
    assert again == []


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("gone", ["dlscale-complete", "bin/python"], ids=["interrupted", "its Python removed"])
def test_an_incomplete_environment_is_created_again(lock, gone):
    home = ensure(lock, []).parents[1]
    (home / gone).unlink()
    (home / "left-over").touch()
    assert run(ensure(lock, []), "import tiny") == ""
    assert not (home / "left-over").exists()
    lock.write_text(lock.read_text(encoding="utf-8") + "# another lock is another environment\n", encoding="utf-8")
    assert ensure(lock, []).parents[1] != home


@pytest.mark.usefixtures("copied")
def test_a_wheel_with_another_hash_is_refused_and_leaves_no_environment(lock, source):
    make_wheel(source, "tiny", "1.2", body="version = 'forged'\n")
    said: list[str] = []
    with pytest.raises(RequestError, match=r"requirements.lock: tiny==1.2 is not the file that was locked \(its hash"):
        ensure(lock, said)
    with pytest.raises(RequestError):
        ensure(lock, said)
    assert said.count(f"creating a virtual environment with Python {HERE}") == 2


@pytest.mark.usefixtures("copied")
def test_a_package_that_no_source_has_is_named(lock, source):
    next(source.glob("tiny*")).unlink()
    with pytest.raises(RequestError, match=r"requirements.lock: tiny==1.2 is not in this machine's package sources"):
        ensure(lock, [])


@pytest.mark.usefixtures("copied")
def test_the_extra_index_is_used_only_for_missing_packages(lock, source, tmp_path, monkeypatch):
    wheel = next(source.glob("tiny*"))
    index = make_index(tmp_path / "index", wheel)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    (tmp_path / "empty").mkdir()
    calls: list[list[str]] = []
    follow = process.follow
    monkeypatch.setattr(process, "follow", lambda argv, **k: (calls.append(list(argv)), follow(argv, **k)))
    ensure(lock, [], extra_index=index)
    assert [index in argv for argv in calls] == [False]
    wheel.unlink()
    calls.clear()
    python = ensure_environment(
        lock=lock, requires_python=THIS, cache=tmp_path / "other", report=print, extra_index=index
    )
    assert [index in argv for argv in calls] == [False, True]
    assert run(python, "import tiny; print(tiny.version)") == "1.2"


def test_a_shim_that_runs_nothing_is_skipped(tmp_path, monkeypatch):
    """pyenv puts a `python3.x` on PATH for every version it knows, and most of them only print an error."""
    shims = tmp_path / "shims"
    shims.mkdir()
    for name in (f"python{HERE}", "python3"):
        (shims / name).write_text("#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n", encoding="utf-8")
        (shims / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    found = find_interpreter(THIS)
    assert found.version == HERE
    assert shims not in found.path.parents


def test_a_version_range_without_a_python_is_refused_with_the_versions_found():
    with pytest.raises(RequestError, match=rf"no Python ==3.99.\* .* is on PATH \(found .*{HERE}.*\); install one"):
        find_interpreter("==3.99.*")


def test_a_cache_that_cannot_be_written_is_refused(lock):
    blocked = lock.parent / "file"
    blocked.touch()
    with pytest.raises(RequestError, match="Not a directory; set DLSCALE_CACHE to a directory that can be written"):
        ensure_environment(lock=lock, requires_python=THIS, cache=blocked, report=print)
    with pytest.raises(RequestError, match=r"gone.lock: can't be read \(No such file or directory\)"):
        ensure_environment(lock=lock.parent / "gone.lock", requires_python=THIS, cache=lock.parent, report=print)
