"""Prevents: bad input that starts something or prints a traceback; each mistake is one sentence and exit code 2.

Prevents: work that stops half-way, silently, because nobody reads its output: `dlscale report | head -1`, a closed ssh connection.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import examples
import pytest
from commands import dlscale
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.commands import cli
from runner.commands.documents import make_variables
from runner.core import parsing
from runner.core.errors import RequestError


def refused(tmp_path, *words, env=None):
    cache = tmp_path / "cache"
    done = dlscale("bench", *words, f"--out={tmp_path / 'out'}", env={"DLSCALE_CACHE": str(cache), **(env or {})})
    assert (done.code, done.stdout) == (2, ""), done.stderr
    sentence = done.stderr.strip()
    assert sentence.startswith("dlscale: ")
    assert "\n" not in sentence
    assert not cache.exists(), "something was begun"
    assert not list((tmp_path / "out").glob("*/*")), "something was begun"
    return sentence


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--framework=mxnte"], "unknown FRAMEWORK 'mxnte'; did you mean mxnet? Known: mxnet"),
        (["--batch=0"], "BATCH=0 is not a whole number of at least 1"),
        (["--workers=4096"], "WORKERS=4096 asked"),
        (["--data={here}/empty"], "is empty; give a folder"),
        (["--seed=-1"], "SEED=-1 is not a whole number of at least 0"),
        (["--interconnect=shm,nvlink"], "INTERCONNECT=nvlink needs GPUs"),
        (["--nodes=2"], "ENGINE=venv emulates no nodes"),
        (["--nodes=2", "--link-rate=fast"], "LINK_RATE=fast: 'fast' is not a rate; write for example 1gbit"),
        (["--nodes=2", "--link-delay=slow"], "LINK_DELAY=slow: "),
    ],
)
def test_each_mistake_is_one_sentence(tmp_path, words, says):
    (tmp_path / "empty").mkdir()
    words = [word.format(here=tmp_path) for word in words]
    assert says in refused(tmp_path, "--device=cpu", "--engine=venv", *words)


def test_manifests_for_a_folder_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "file").touch()
    done = dlscale("plan", "--format=k8s", "--workers=1", "--framework=pytorch", f"--out={tmp_path / 'file' / 'sub'}")
    assert (done.code, done.stdout) == (2, ""), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "--dry-run"],
        ["ablate", "--workers=1"],
        ["reproduce", "uw-hardware", "--dry-run"],
        ["data", "pack", "--out=x.rec"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_refuses_missing_data(tmp_path, words):
    gone = tmp_path / "gone"
    done = dlscale(*words, gone if words[0] == "data" else f"--data={gone}")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"dlscale: DATA={gone} does not exist; ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "env", "says"),
    [
        (["--gpus=2", "--framework=pytorch"], {"CUDA_VISIBLE_DEVICES": ""}, "ask for DEVICE=cpu WORKERS=1,2 instead"),
        (["--engine=docker", "--device=cpu"], {"DOCKER_HOST": "unix:///nowhere.sock"}, "or ask for ENGINE=venv"),
    ],
    ids=["no GPU", "no engine"],
)
def test_a_missing_gpu_or_engine_names_the_alternative(tmp_path, words, env, says):
    assert refused(tmp_path, *words, env=env).endswith(says)


def test_a_sources_own_program_without_an_image_is_refused_in_one_sentence():
    words = ("reproduce", "dell-p100", "--program=/mxnet/train_imagenet.py")
    for env, step in (({}, "--image IMG"), ({"DLSCALE_MAKE": "1"}, "IMAGE=IMG")):
        done = dlscale(*words, env=env)
        assert (done.code, done.stdout) == (2, "")
        (said,) = done.stderr.splitlines()
        assert said.endswith(f"is a path in an image of your own; add {step}")


def test_an_unwritable_results_directory_is_refused(tmp_path):
    (tmp_path / "out").touch()
    said = refused(
        tmp_path / "out", "--framework=mxnet", "--engine=venv", env={"DLSCALE_CACHE": str(tmp_path / "cache")}
    )
    assert "can't be written (Not a directory); choose another OUT=DIR" in said


@pytest.mark.parametrize(
    "command",
    ["bench", "doctor", "regrade", "profile", "report", "published", "clean", "overhead", "schema", "images", "data"],
)
def test_every_command_explains_itself(command):
    done = dlscale(command, "--help")
    assert done.code == 0
    assert command in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *[(words, "DIR=results/MACHINE with make") for words in (["regrade", ""], ["report", ""])],
        *[
            (["report", *words], "DIR=results/MACHINE with make")
            for words in (["--check", " "], ["--format=mllog", ".", ""])
        ],
        (["profile", ""], "RUN=results/MACHINE with make"),
        (["collect", ""], "DIR=results/kubernetes/"),
        (["query", "SELECT * FROM runs", "--in", ""], "IN=results/MACHINE"),
        (["compare", "results", " "], "name both"),
        (["data", "sample", ""], "OUT=/tmp/sample with make"),
        (["data", "pack", "", "--out=train.rec"], "dlscale data pack /data/train"),
        (["images", "archive", ""], "dlscale images archive"),
        (["images", "load", ""], "dlscale images load"),
    ],
)
def test_an_empty_directory_argument_is_not_the_working_directory(tmp_path, words, says):
    """`make regrade` without DIR traversed, and could rewrite, every record below the working directory."""
    done = dlscale(*words, cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_vendors_container_is_not_fetched_in_parts():
    done = dlscale("images", "fetch", "caffe:0.17.3-nvidia")
    assert (done.code, done.stdout) == (2, "")
    assert "dlscale images archive" in done.stderr


def test_a_plan_says_that_resume_would_reuse_some_of_its_runs(tmp_path):
    """It printed all of them without a word."""
    words = ("--workers=1", "--device=cpu", "--engine=venv", "--framework=pytorch", f"--out={tmp_path}")
    assert (
        f"--resume would reuse those of these runs that are in {tmp_path}" in dlscale("plan", "--resume", *words).stderr
    )
    assert "--resume" not in dlscale("plan", *words).stderr


def test_the_doctor_refuses_an_interface_without_hosts():
    """IFACE was ignored."""
    done = dlscale("doctor", "--iface=eth0", env={"DLSCALE_MAKE": "1"})
    assert (done.code, done.stdout) == (2, "")
    assert "add HOSTS=FILE" in done.stderr


def test_the_doctor_prints_json_with_every_image():
    findings = json.loads(dlscale("doctor", "--json").stdout)
    subjects = {finding["subject"] for finding in findings}
    assert {"engine docker", "engine venv", "image mxnet 1.9.1", "image pytorch 2.13.0-cpu"} <= subjects


def make(*words):
    argv = ["make", "--no-print-directory", "-n", *words]  # nested in `make test`, it would print directories
    return subprocess.run(argv, cwd=examples.ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "FRAMEWROK=pytorch", "MODLE=a b"], "no FRAMEWROK MODLE; did you mean FRAMEWORK or MODE or MODEL?"),
        (["bench", "WORKER=2"], "`make bench` takes no WORKER; did you mean WORKERS? See `make help`"),
        (["bench", "model=lenet"], "`make bench` takes no model; did you mean MODEL or MODE? See `make help`"),
        (["doctor", "HOSTS=a:1", "MODEL=lenet"], "`make doctor` takes no MODEL;"),
        (["images", "bench", "DIR=x"], "`make images bench` takes no DIR;"),
        (["bench", "DRY_RUN=1"], "`make bench` takes no DRY_RUN; type `make plan`"),
        (["diagnose", "DRY_RUN=1"], "`make diagnose` takes no DRY_RUN; see `make help`"),
        (["show"], "no target show; type `.venv/bin/dlscale show`"),
        (["predict", "RUN=last"], "no target predict; type `.venv/bin/dlscale predict`"),
        (["bnech"], "no target bnech; did you mean bench? See `make help`"),
    ],
)
def test_make_refuses_unknown_targets_and_variables_but_passes_on_common_ones(words, says):
    """A mistyped variable was ignored, and the defaults were planned."""
    done = make(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    done = make("lint", "PYTHON=python3", "PYTEST=tests/unit", "DLSCALE_CACHE=/tmp/x", "PIP_INDEX_URL=x")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", ["", "0", "no", "false", "off", "False"])
def test_a_switch_of_make_can_be_turned_off(value):
    done = make("bench", f"XLA={value}", f"OVERSUBSCRIBE={value}", f"COMPARE={value}", "MODEL=lenet")
    assert "--model='lenet'" in done.stdout.split()
    assert not {"--xla", "--oversubscribe", "--compare"} & set(done.stdout.split())
    assert "--json" not in make("published", f"JSON={value}").stdout
    assert "--json" in make("published", "JSON=1").stdout


def test_a_switch_that_is_neither_on_nor_off_is_refused(tmp_path):
    """COMPARE=off compared all wires."""
    for value in ("maybe", f"$(shell touch {tmp_path / 'owned'})"):
        done = make("bench", f"COMPARE={value}")
        assert (done.returncode, f"COMPARE={value}" in done.stderr) == (2, True)
    assert not list(tmp_path.iterdir())
    done = dlscale("plan", "--workers=1", "XLA=maybe")
    assert (done.code, "XLA=maybe" in done.stderr) == (2, True)


def test_every_make_variable_reaches_the_program_of_its_target():
    targets = make_variables((examples.ROOT / "Makefile").read_text(encoding="utf-8"))
    switches = {"JSON", "MARKDOWN", "CSV", "DRY_RUN", "BESIDE_HOST", "VERBOSE", "XLA", "OVERSUBSCRIBE", "COMPARE"} | {
        "RESUME"
    }
    assert len(targets) > 15
    campaign = [name for name in targets.pop("torture") if name != "ENGINE"]
    for target, names in [
        *targets.items(),
        ("torture", campaign),
        ("torture", ["ENGINE"]),
    ]:  # CLUSTER selects another test file
        done = make(target, *(f"{name}={'1' if name in switches else f'of-{name}'}" for name in names))
        for name in names:
            handed = f"--{name.lower().replace('_', '-')}" if name in switches else f"of-{name}"
            assert handed in done.stdout, (target, name)


def argv_of(printed, command):
    """The argv that a shell parses from the line that make prints for a command."""
    line = next(line for line in printed.splitlines() if f" {command} " in line)
    return subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["bench", "MODEL=$(shell touch {owned})"], "--model=$(shell touch {owned})"),
        (["bench", "GPUS=1,2", "MODEL=a'b; touch {owned}"], "--model=a'b; touch {owned}"),
        (["bench", "OUT=/data/$team"], "--out=/data/$team"),
        (["regrade", "DIR=$(shell touch {owned})"], "$(shell touch {owned})"),
        (["query", "SQL=SELECT $$a, $b"], "SELECT $$a, $b"),
    ],
)
def test_make_passes_a_value_as_one_argument_without_expanding_it(tmp_path, words, flag):
    """`make bench MODEL='$(shell ...)'` executed it, and `OUT=/data/$team` lost its $t."""
    owned = tmp_path / "owned"
    done = make(*(word.replace("{owned}", str(owned)) for word in words))
    assert flag.replace("{owned}", str(owned)) in argv_of(done.stdout, words[0])
    assert not owned.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("bench --batchsize 32", "`dlscale bench` has no option --batchsize; did you mean --batch or --techniques?"),
        ("bench --gpu 2", "`dlscale bench` has no option --gpu; did you mean --gpus or --gpu-memory?"),
        ("bench --xyzzy", "`dlscale bench` has no option --xyzzy; `dlscale bench --help` lists all"),
        ("list", "`dlscale list` needs WHAT: frameworks, models, strategies or studies"),
        ("rerun", "`dlscale rerun` needs RUN: run directory, a run's id"),
        ("benchmark", "no such command 'benchmark'; did you mean 'bench'? `dlscale --help` lists all"),
        ("ls here there", "got unexpected extra argument(s) (there); `dlscale ls --help` lists all"),
        ("images", "missing command; `dlscale images --help` lists all"),
        ("bench --model vgg", "unknown MODEL 'vgg'; did you mean vgg16? Known: vgg16, vgg19, alexnet, bert-base,"),
    ],
)
def test_a_mistyped_command_line_gets_one_sentence(words, says):
    """Typer drew a box of ten lines, whose first suggestion for --worker was --loader-workers."""
    done = dlscale(*words.split())
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dlscale: {says}")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 240


@pytest.mark.parametrize(
    "words",
    [
        "bench --gpus=1 --gpus 2",
        "doctor -H a:1 --hosts=b:1",
        "data sample x --images=1 --images=1",
        "bench GPUS=1 GPUS=2",
    ],
)
def test_a_repeated_option_is_refused(words):
    """`bench --gpus=1 --gpus=2` ran on two GPUs only."""
    done = dlscale(*words.split())
    assert (done.code, done.stdout) == (2, "")
    assert "is given twice" in done.stderr


def test_make_refuses_a_repeated_variable():
    """`make bench GPUS=1 GPUS=2` ran on two GPUs only; a value may well contain `GPUS=1`."""
    done = make("bench", "GPUS=1", "MODEL=lenet", "GPUS=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "GPUS is given twice" in done.stderr
    assert make("query", "SQL=a\nSQL=b", "IN=SQL=x").returncode == 0


def test_options_that_are_lists_may_be_repeated(tmp_path):
    words = [f"--mount={tmp_path}:/{name}" for name in "ab"] + ["--env=A=1", "--env=B=2"]
    done = dlscale("bench", "--dry-run", "--image=dlscale/none:1", "--device=cpu", *words, "--", "true")
    assert "given twice" not in done.stderr


def test_make_help_fits_one_screen():
    """Lines of 470 characters wrapped within words, then 59 lines scrolled past: this is the first thing that a newcomer types."""
    done = subprocess.run(["make", "--no-print-directory", "help"], cwd=examples.ROOT, capture_output=True, text=True)
    assert max(map(len, lines := done.stdout.splitlines())) <= 80
    assert len(lines) <= 40
    assert "WORKERS" in done.stdout


@pytest.mark.parametrize("words", [["regrade", "DIR={}"], ["query", "SQL={}"], ["reproduce", "STUDY={}"]])
def test_make_exports_no_expanded_variables_to_its_programs(tmp_path, words):
    """When make runs a command, it exports command-line variables, expanded; `make -n` showed nothing of it."""
    owned = tmp_path / "owned"
    hostile = f"$(shell touch {owned})"
    argv = ["make", "--no-print-directory", "DLSCALE=true", *(word.format(hostile) for word in words)]
    done = subprocess.run(argv, cwd=examples.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not owned.exists()


@pytest.fixture
def main(monkeypatch):
    """The command line in this process, without its effects on the whole process."""
    for module, own in ((cli.console, "discard_after_hangup"), (cli.interrupts, "listen"), (cli.interrupts, "ignore")):
        monkeypatch.setattr(module, own, lambda: None)
    monkeypatch.setattr(cli.interrupts, "_received", [])
    monkeypatch.setattr(sys, "argv", ["dlscale"])
    return cli.main


def test_a_system_error_is_one_sentence_and_a_bug_keeps_its_traceback(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(lambda **_: Path("/etc/passwd/x").read_text(encoding="utf-8"))
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("dlscale: /etc/passwd/x can't be read or written (Not a directory); ")

    def app(**_):
        raise OSError("a library's own")

    with pytest.raises(OSError, match="a library's own"):
        main(app)


@pytest.mark.parametrize(
    ("words", "stdout", "says"),
    [
        ([b"published"], "/dev/full", "standard output or a file can't be read or written (No space left"),
        ([b"bench", b"--image=x", b"--", b"echo\xff"], "/dev/null", "echo\\udcff on the command line is not UTF-8"),
    ],
    ids=["output that can't be written", "a word that is not UTF-8"],
)
def test_unusable_output_or_arguments_are_refused_without_a_traceback(words, stdout, says):
    argv = [sys.executable.encode(), b"-m", b"runner.commands", *words]
    with Path(stdout).open("w") as file:
        done = subprocess.run(argv, cwd=examples.ROOT, stdout=file, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"dlscale: {says}")
    assert done.stderr.count("\n") == 1


@settings(max_examples=300)
@given(st.text(max_size=12))
def test_number_parsers_accept_text_or_reject_it_in_one_sentence(text):
    for parse in (parsing.count, parsing.counts, parsing.non_negative):
        try:
            value = parse("BATCH", text)
        except RequestError as error:
            assert "BATCH=" in str(error)
        else:
            assert value is None or value == 0 or (value if isinstance(value, int) else min(value)) >= 1


CODE = """
    import sys
    from pathlib import Path
    from rich.console import Console
    from runner.commands import cli; from runner.commands import regrade
    def body(directory):
        sys.stdin.readline()
        for stream in (sys.stdout, sys.stderr):
            for number in range(3):
                Console(file=stream).print("line", number)
            stream.write("x" * 100_000)
            stream.flush()
        (directory / "done").touch()
        return 4
    regrade.regrade_all = body
    sys.argv = ["dlscale", "regrade", sys.argv[1]]
    cli.main()
"""


@pytest.mark.parametrize("opened", [os.pipe, os.openpty], ids=["a pipe", "a terminal"])
def test_a_command_finishes_its_work_when_its_output_is_closed(tmp_path, opened):
    reading, writing = opened()
    argv = [sys.executable, "-c", textwrap.dedent(CODE), str(tmp_path)]
    process = subprocess.Popen(argv, cwd=examples.ROOT, stdin=subprocess.PIPE, stdout=writing, stderr=writing)
    os.close(writing)
    os.close(reading)
    process.communicate(b"go on\n", timeout=60)
    assert process.returncode == 4
    assert (tmp_path / "done").exists()


def test_output_arrives_complete_if_it_is_read(tmp_path):
    argv = [sys.executable, "-c", textwrap.dedent(CODE), str(tmp_path)]
    done = subprocess.run(argv, cwd=examples.ROOT, input="go on\n", capture_output=True, text=True)
    assert done.stdout == done.stderr == "line 0\nline 1\nline 2\n" + "x" * 100_000
