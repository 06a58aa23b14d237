"""Prevents a README or a page of docs/ that is wrong. Every command in them runs once, trainings with few and small iterations."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import ROOT
from testbed import apptainer

from runner.core.errors import RequestError

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    block for page in PAGES for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
]
COMMANDS = list(
    dict.fromkeys(line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip())
)
SMALL = ("ITERATIONS=4", "WARMUP=1", "REPEAT=1", "DEVICE=cpu", "THREADS=1", "IMAGE_SIZE=64", "WORKERS=1")


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """Folder where a command leaves files for later ones: records of a profile, and the files for a machine without a network."""
    return tmp_path_factory.mktemp("passes")


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, marks=pytest.mark.alone) if command == "make clean" else command for command in COMMANDS],
)
def test_the_command_works(command, sample, tmp_path, client, shared_folder):
    if command in ("make test", "make verify"):
        assert f"{command}\n" in (ROOT / ".ci" / "run").read_text()  # it runs this test, or ran before it
        return
    if "/run/dlscale-rig" in command or command.startswith("make rig"):
        if os.getuid():
            pytest.skip("several hosts on one machine need root")
        if not command.startswith("make rig"):
            assert Path("/run/dlscale-rig/0/hosts.yaml").exists(), "the rig of the command before is not there"
    environment = in_apptainer() if "sif" in command.split() else None
    words = shortened(
        with_test_folders(command, sample, tmp_path, shared_folder),
        out=shared_folder if "PROFILE=" in command else tmp_path / "out",
    )
    if words[:2] == ["make", "profile"]:
        words[2] = f"RUN={shared_folder}"
    checkout = ROOT
    if "PIP_NO_INDEX=1" in words:
        if os.getuid():
            pytest.skip("a process without a network needs root")
        checkout = tmp_path / "copied"
        subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
        words = ["unshare", "--net", *words]
    done = subprocess.run(
        words, cwd=checkout, env=environment, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
    )
    if "GPUS=1,2,4" in words and "offers none" in done.stderr:
        assert done.returncode == 2  # the reply on a machine without GPUs
        return
    assert done.returncode == 0, done.stdout + done.stderr


def in_apptainer():
    """Environment of a command that needs Apptainer."""
    try:
        return apptainer.environment(ROOT)
    except RequestError as error:
        pytest.skip(str(error))


def with_test_folders(command, sample, tmp_path, shared_folder):
    """A command's arguments, with the test's own folders."""
    data = str(tmp_path / "new" if "sample" in command.split()[:3] else sample)
    folders = {
        "/tmp/dlscale-sample": data,
        "/tmp/dlscale-report": str(tmp_path),
        "/tmp/dlscale-away": str(shared_folder),
        "/tmp/dlscale-plan": str(tmp_path / "plan"),
        "/tmp/dlscale-images": str(apptainer.KEPT / "archive"),
    }
    words = shlex.split(command)
    for folder, place in folders.items():
        words = [word.replace(folder, place) for word in words]
    return ["60" if word == "2000" else word for word in words]


def some_results(folder):
    """Copy one matrix of the suite's own results, all of which `make report` would draw."""
    for run in ROOT.glob("results/epyc-2core/*-2d6e-*"):
        shutil.copytree(run, folder / run.name)
    return folder


def shortened(words, *, out):
    """Shorten a command's work, and send its records to `out`."""
    if "CLUSTER=slurm" in words:  # test_slurm_jobs.py runs them for real
        words = ["make", "plan", *words[2:]]
    if words[:2] in (["make", "bench"], ["make", "compare-interconnects"]):
        told = {word.partition("=")[0] for word in words}
        left_out = {"DEVICE", "THREADS"} if "GPUS" in told else {"ITERATIONS"} if "MODE=converge" in words else set()
        if {"MODEL=lenet", "MODEL=mlp-512-reuters", "MODEL=llama-tiny"} & set(words):
            left_out |= {"IMAGE_SIZE"}
        if {"GPUS", "HOSTS"} & told or words == ["make", "bench"] or words[1] != "bench":  # commands for a speedup
            left_out |= {"WORKERS"}
        few = [small for small in SMALL if small.partition("=")[0] not in told | left_out]
        return [*words, *few, f"OUT={out}", *([] if "BATCH" in told else ["BATCH=4"])]
    if words[1] == "bench":  # dlscale's own
        return [*words[:2], f"--out={out}", *words[2:]]
    if words[:2] == ["make", "reproduce"]:  # test_reproduce.py runs them for real
        return [*words, "DRY_RUN=1"]
    if words == ["make", "report"]:
        return [*words, f"DIR={some_results(out)}"]
    if words[:2] == ["make", "overhead"]:
        return [*words, "MODEL=lenet", "REPEAT=1", "THREADS=1", f"OUT={out}"]
    return words


def test_the_pages_have_commands():
    assert len(COMMANDS) > 40
