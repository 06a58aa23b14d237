"""A README that lies: every command in it is run, trainings with few and small iterations."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import ROOT

BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
COMMANDS = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
SMALL = ("ITERATIONS=4", "WARMUP=1", "REPEAT=1", "DEVICE=cpu")


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """Where the command that profiles leaves its records, and the next one looks for them."""
    return tmp_path_factory.mktemp("passes")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_works(command, sample, tmp_path, client, passes):
    if command == "make test":
        assert "make test" in (ROOT / ".ci" / "run").read_text()  # it is what runs this
        return
    words = [
        word.replace("/tmp/dlscale-sample", str(tmp_path / "new" if "sample" in command.split()[:3] else sample))
        for word in shlex.split(command)
    ]
    words = ["60" if word == "2000" else word.replace("/tmp/dlscale-report", str(tmp_path)) for word in words]
    if "/run/dlscale-rig" in command or words[:2] == ["make", "rig"]:
        if os.getuid():
            pytest.skip("several hosts on one machine need root")
        if not command.startswith("make rig"):
            assert Path("/run/dlscale-rig/0/hosts.yaml").exists(), "the rig of the command before is not there"
    if words[:2] in (["make", "bench"], ["make", "compare-interconnects"]):
        gpus = any(word.startswith("GPUS=") for word in words)
        out = passes if "PROFILE=" in command else tmp_path / "out"
        words += [small for small in SMALL if not (gpus and small == "DEVICE=cpu")] + [f"OUT={out}"]
        words += [] if any(word.startswith("BATCH=") for word in words) else ["BATCH=4"]
    if words[1] == "bench" and words[0].endswith("dlscale"):
        words.insert(2, f"--out={tmp_path / 'out'}")
    if words[:2] == ["make", "profile"]:
        words[2] = f"RUN={passes}"
    if words[:2] == ["make", "reproduce"]:  # test_reproduce.py runs them for real
        words.append("DRY_RUN=1")
    if words[:2] == ["make", "overhead"]:
        words.append("REPEAT=1")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    if "GPUS=1,2,4" in words and "offers none" in done.stderr:
        assert done.returncode == 2  # what a machine without GPUs answers
        return
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_has_commands():
    assert len(COMMANDS) > 10
