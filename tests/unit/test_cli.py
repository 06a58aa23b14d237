"""Bad input that starts something, or answers with a traceback: each mistake is one sentence and exit code 2."""

import re
import subprocess
import sys
from pathlib import Path

import examples
import pytest
from commands import to_its_end
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import cli
from runner.core import parsing
from runner.core.errors import RequestError


def dlscale(*words, env=None, cwd=examples.ROOT):
    return to_its_end(words, env=env, cwd=cwd, timeout=120)


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


@pytest.fixture
def no_jpeg(tmp_path):
    (tmp_path / "set" / "cats").mkdir(parents=True)
    (tmp_path / "set" / "cats" / "a.png").touch()
    return tmp_path / "set"


def refused(tmp_path, *words):
    done = dlscale(
        "bench",
        "--device=cpu",
        "--engine=venv",
        *words,
        f"--out={tmp_path / 'out'}",
        env={"DLSCALE_CACHE": str(tmp_path / "cache")},
    )
    assert done.code == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    sentence = done.stderr.strip()
    assert sentence.startswith("dlscale: ")
    assert "\n" not in sentence
    assert not (tmp_path / "cache").exists(), "something was begun"
    assert not list((tmp_path / "out").glob("*/*")), "something was begun"
    return sentence


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--framework=mxnte"], "unknown FRAMEWORK 'mxnte'; did you mean mxnet? Known: mxnet"),
        (
            ["--framework=mxnet", "--version=1.9.2"],
            "unknown VERSION '1.9.2' of mxnet; did you mean 1.9.1? Known: 1.9.1",
        ),
        (["--framework=mxnet", "--model=resnet51"], "unknown MODEL 'resnet51'; did you mean resnet50? Known: resnet50"),
        (["--batch=0"], "BATCH=0 is not a whole number of at least 1"),
        (["--batch=many"], "BATCH=many is not a whole number of at least 1"),
        (["--iterations=-5"], "ITERATIONS=-5 is not a whole number"),
        (["--workers=4096"], "WORKERS=4096 asked"),
        (
            ["--framework=mxnet", "--strategy=ddp"],
            "STRATEGY=ddp is not offered by FRAMEWORK=mxnet; mxnet offers single, kvstore",
        ),
        (["--precision=fp8"], "unknown PRECISION 'fp8'; did you mean fp32? Known:"),
        (["--data={here}/gone"], "/gone does not exist"),
        (["--hosts=a:4,b:4"], "ENGINE=venv runs on this machine alone"),
        (["--nodes=2", "--link-rate=fast"], "'fast' is no rate; write for example 1gbit"),
        (["--interconnect=ethernet"], "INTERCONNECT=ethernet asked, but a job on one host crosses no network"),
        (["--timeout=later"], "TIMEOUT=later is not a duration"),
    ],
)
def test_each_mistake_is_one_sentence(tmp_path, words, says):
    assert says in refused(tmp_path, *(word.format(here=tmp_path) for word in words))


def test_data_that_is_empty_or_holds_no_jpeg(tmp_path, empty, no_jpeg):
    assert "is empty; give a folder" in refused(tmp_path, f"--data={empty}")
    assert "holds no JPEG in class folders" in refused(tmp_path, f"--data={no_jpeg}")


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
def test_data_that_are_not_there_are_refused_by_every_command(tmp_path, words):
    gone = tmp_path / "gone"
    done = dlscale(*words, gone if words[0] == "data" else f"--data={gone}")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"dlscale: DATA={gone} does not exist; ")
    assert "Traceback" not in done.stderr


def test_a_results_directory_that_can_not_be_written(tmp_path):
    (tmp_path / "file").touch()
    done = dlscale(
        "bench",
        "--device=cpu",
        "--engine=venv",
        f"--out={tmp_path / 'file' / 'x'}",
        env={"DLSCALE_CACHE": str(tmp_path / "cache")},
    )
    assert done.code == 2
    assert "can't be written (Not a directory); give another place with OUT=DIR" in done.stderr


def test_gpus_on_a_machine_without_any_says_what_to_type(tmp_path):
    done = dlscale("bench", "--gpus=2", "--framework=pytorch", f"--out={tmp_path}", env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 2
    assert done.stderr.strip().endswith("ask for DEVICE=cpu WORKERS=1,2 instead")


def test_an_engine_that_does_not_answer_is_named_with_the_alternative(tmp_path):
    done = dlscale(
        "bench", "--engine=docker", "--device=cpu", f"--out={tmp_path}", env={"DOCKER_HOST": "unix:///nowhere.sock"}
    )
    assert done.code == 2
    assert "ENGINE=docker asked, but no Docker engine answers" in done.stderr
    assert done.stderr.strip().endswith("or ask for ENGINE=venv")


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
        (["regrade", ""], "for example DIR=results/MACHINE with make"),
        (["profile", ""], "for example RUN=results/MACHINE with make"),
        (["report", ""], "for example DIR=results/MACHINE with make"),
        (["report", "--check", " "], "for example DIR=results/MACHINE with make"),
        (["report", "--format=mllog", ".", ""], "for example DIR=results/MACHINE with make"),
        (["query", "SELECT * FROM runs", "--in", ""], "for example IN=results/MACHINE"),
        (["compare", "results", " "], "name both"),
        (["data", "sample", ""], "for example OUT=/tmp/sample with make"),
        (["data", "pack", "", "--out=train.rec"], "for example dlscale data pack /data/train"),
        (["images", "archive", ""], "for example dlscale images archive"),
        (["images", "load", ""], "for example dlscale images load"),
    ],
)
def test_an_empty_directory_is_not_the_one_that_one_is_in(tmp_path, words, says):
    """`make regrade` without DIR walked, and could write, every record below the current directory."""
    done = dlscale(*words, cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_flag_that_does_not_exist_is_refused():
    done = dlscale("bench", "--gpu=1")
    assert done.code == 2


def test_the_doctor_speaks_json_and_knows_every_image():
    import json

    findings = json.loads(dlscale("doctor", "--json").stdout)
    subjects = {finding["subject"] for finding in findings}
    assert {"engine docker", "engine venv", "image mxnet 1.9.1", "image pytorch 2.13.0-cpu"} <= subjects


def make(*words):
    argv = ["make", "--no-print-directory", "-n", *words]  # a make that runs the tests would have it named
    return subprocess.run(argv, cwd=examples.ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (
            ["plan", "FRAMEWROK=pytorch", "MODLE=a b"],
            "`make plan` takes no FRAMEWROK MODLE; did you mean FRAMEWORK or MODE or MODEL? See",
        ),
        (["bench", "WORKER=2"], "`make bench` takes no WORKER; did you mean WORKERS? See `make help`"),
        (["doctor", "HOSTS=a:1", "MODEL=lenet"], "`make doctor` takes no MODEL;"),
        (["images", "bench", "DIR=x"], "`make images bench` takes no DIR;"),
    ],
)
def test_make_refuses_a_variable_that_its_target_would_ignore(words, names):
    """A mistyped one planned the default."""
    done = make(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert names in done.stderr
    assert done.stderr.count("\n") == 1


def test_make_hands_on_what_is_for_all_targets():
    done = make("lint", "PYTHON=python3", "PYTEST=tests/unit", "DLSCALE_CACHE=/tmp/x", "PIP_INDEX_URL=x")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", ["", "0", "no", "false"])
def test_a_switch_of_make_can_be_off(value):
    done = make("bench", f"XLA={value}", f"OVERSUBSCRIBE={value}", f"COMPARE={value}", "MODEL=lenet")
    assert "--model='lenet'" in done.stdout.split()
    assert not {"--xla", "--oversubscribe", "--compare"} & set(done.stdout.split())
    assert "--json" not in make("published", f"JSON={value}").stdout
    assert "--json" in make("published", "JSON=1").stdout


def test_every_variable_that_a_target_of_make_takes_reaches_its_program():
    text = (examples.ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    lists = {name: words.split() for name, words in re.findall(r"^([\w.-]+) := (.*)$", text, re.MULTILINE)}
    switches = {*lists["SWITCHES"], "JSON", "MARKDOWN", "CSV", "DRY_RUN", "BESIDE_HOST", "VERBOSE"}

    def all_of(words):
        return [n for w in words for n in (all_of(lists[w[2:-1]]) if w.startswith("$(") else [w])]

    targets = {name.removeprefix("TAKES."): all_of(words) for name, words in lists.items() if name.startswith("TAKES.")}
    assert len(targets) > 15
    for target, names in targets.items():
        done = make(target, *(f"{name}=of-{name}" for name in names))
        for name in names:
            handed = f"--{name.lower().replace('_', '-')}" if name in switches else f"of-{name}"
            assert handed in done.stdout, (target, name)


def test_make_hands_every_variable_over_as_one_word(tmp_path):
    """A value with a quote or a command in it reaches the program as it was typed."""
    hostile = "a'b; touch " + str(tmp_path / "owned")
    done = subprocess.run(
        ["make", "-n", "bench", f"MODEL={hostile}", "GPUS=1,2"], cwd=examples.ROOT, capture_output=True, text=True
    )
    line = next(line for line in done.stdout.splitlines() if " bench " in line)
    argv = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True).stdout.splitlines()
    assert f"--model={hostile}" in argv
    assert "--gpus=1,2" in argv
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["bench", "MODEL=$(shell touch {owned})"], "--model=$(shell touch {owned})"),
        (["bench", "OUT=/data/$team"], "--out=/data/$team"),
        (["regrade", "DIR=$(shell touch {owned})"], "$(shell touch {owned})"),
        (["query", "SQL=SELECT $$a, $b"], "SELECT $$a, $b"),
        (["bench", "XLA=$(shell touch {owned})"], "--xla"),
    ],
)
def test_make_expands_no_variable_in_a_value(tmp_path, words, flag):
    """`make bench MODEL='$(shell ...)'` ran it, and `OUT=/data/$team` lost its $t."""
    owned = tmp_path / "owned"
    done = make(*(word.replace("{owned}", str(owned)) for word in words))
    line = next(line for line in done.stdout.splitlines() if f"dlscale {words[0]}" in line)
    argv = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True).stdout.splitlines()
    assert flag.replace("{owned}", str(owned)) in argv
    assert not owned.exists()


def test_make_help_keeps_to_80_columns():
    """Lines of 470 characters broke in the middle of words, in what a newcomer types first."""
    done = subprocess.run(["make", "--no-print-directory", "help"], cwd=examples.ROOT, capture_output=True, text=True)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "WORKERS" in done.stdout


@pytest.mark.parametrize("words", [["regrade", "DIR={}"], ["query", "SQL={}"], ["reproduce", "STUDY={}"]])
def test_make_expands_no_variable_that_it_hands_on_to_its_programs(tmp_path, words):
    """Where make really ran a command it exported what it was given, and expanded it for that: `make -n` showed nothing of it."""
    owned = tmp_path / "owned"
    hostile = f"$(shell touch {owned})"
    argv = ["make", "--no-print-directory", "DLSCALE=true", *(word.format(hostile) for word in words)]
    done = subprocess.run(argv, cwd=examples.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not owned.exists()


@pytest.fixture
def main(monkeypatch):
    """The command line in this process, without what it does to the whole of one."""
    for module, own in ((cli.console, "outlast"), (cli.interrupts, "listen"), (cli.interrupts, "ignore")):
        monkeypatch.setattr(module, own, lambda: None)
    monkeypatch.setattr(cli.interrupts, "_came", [])
    monkeypatch.setattr(sys, "argv", ["dlscale"])
    return cli.main


def test_what_the_system_refuses_is_one_sentence(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(lambda: Path("/etc/passwd/x").read_text(encoding="utf-8"))
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "dlscale: /etc/passwd/x can't be read or written (Not a directory); mend that, or give another place\n"
    )


def test_a_bug_keeps_its_traceback(main):
    def app():
        raise OSError("a library's own")

    with pytest.raises(OSError, match="a library's own"):
        main(app)


def test_output_that_can_not_be_written_leaves_no_traceback():
    argv = [sys.executable, "-m", "runner", "published"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, cwd=examples.ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("dlscale: standard output or a file can't be read or written (No space left")
    assert done.stderr.count("\n") == 1


def test_a_word_that_is_not_utf8_is_refused_before_anything_starts():
    argv = [sys.executable.encode(), b"-m", b"runner", b"bench", b"--image=x", b"--", b"echo\xff"]
    done = subprocess.run(argv, cwd=examples.ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "dlscale: echo\\udcff on the command line is not UTF-8; write it in UTF-8, and rename the file if it is one\n"
    )


@settings(max_examples=300)
@given(st.text(max_size=12))
def test_no_text_makes_a_number_parser_fail_otherwise_than_in_one_sentence(text):
    for parse in (parsing.count, parsing.counts, parsing.whole):
        try:
            value = parse("BATCH", text)
        except RequestError as error:
            assert "BATCH=" in str(error)
        else:
            assert value is None or value == 0 or (value if isinstance(value, int) else min(value)) >= 1
