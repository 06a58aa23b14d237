"""The commands that users try first.

Prevents: a run that must be named by its whole path; `last` that reads every record of a large tree, or takes a copy or an older run for
the newest; an ambiguous name that silently selects one run; a list too wide for any terminal; a figure without the number of its runs.

Runs that are counted twice, or not found.

Prevents: a link to a run, or a copy, that counts as a repeat; a backup that is taken for the run itself; a folder that is not found
because its name is read as a pattern; one damaged record that hides the others.
"""

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest
from records import record
from typer.testing import CliRunner

from runner import __version__
from runner.commands import catalog, cli
from runner.core import console
from runner.core.errors import RequestError
from runner.results import find
from runner.results import find as by_name
from runner.results.find import MATRIX, PASS, RUN, newest_first, records_under, resolve, runs_at
from runner.results.store import write_record
from runner.run import bench

RUNNER = CliRunner()
OLD, NEW = "20260101T000000Z-00ff", "20260102T000000Z-0000"
RUNS = (
    f"{NEW}-mxnet-resnet18-1cpu-r10",
    f"{NEW}-mxnet-resnet18-1cpu-r9",
    f"{NEW}-mxnet-resnet18-1cpu-profile-kernels-r1",
    f"{OLD}-mxnet-resnet18-2cpu-r1",
    f"{OLD}-mxnet-resnet18-1cpu-r1",
)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Two matrices in two folders, and a copy with another name."""
    for name in RUNS:
        folder = tmp_path / ("new" if name.startswith(NEW) else "old") / name
        folder.mkdir(parents=True)
        write_record(folder, record(run_id=name))
    shutil.copytree(tmp_path / "old" / RUNS[-1], tmp_path / "old" / "zcopy")
    monkeypatch.setattr(by_name, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """The requests that `bench` received; nothing is run."""
    found = []
    monkeypatch.setattr(bench, "bench", lambda request, command, **_: found.append((request, command)) or 0)
    monkeypatch.setattr(bench, "dry_run", lambda request: found.append((request, None)) or 0)
    return found


def dlscale(*words):
    return RUNNER.invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "80"})


def names(found):
    return [run.name for run in found]


def test_the_newest_comes_first_and_no_record_is_read(tree, monkeypatch):
    monkeypatch.setattr(find, "read_record", None)
    assert names(newest_first(tree)) == [RUNS[0], RUNS[1], RUNS[2], RUNS[3], RUNS[4], "zcopy"]


def test_a_backup_is_not_a_separate_run(tree):
    shutil.copytree(tree / "new", tree / "backup" / "new")
    assert newest_first(tree)[0] == tree / "new" / RUNS[0]
    assert len(newest_first(tree)) == len(RUNS) + 1


@pytest.mark.parametrize(
    ("word", "run"),
    [
        ("last", RUNS[0]),
        ("last~0", RUNS[0]),
        ("last~3", RUNS[3]),
        (RUNS[4], RUNS[4]),
        (f"{OLD}-mxnet-resnet18-2", RUNS[3]),
    ],
)
def test_a_run_has_several_names(tree, word, run):
    assert names(resolve(word)) == [run]


def test_a_complete_run_id_is_not_taken_for_a_prefix(tree):
    shutil.copytree(tree / "old" / RUNS[4], tree / "old" / f"{RUNS[4]}0")
    assert names(resolve(RUNS[4])) == [RUNS[4]]


def test_a_path_is_returned_unmodified(tree, monkeypatch):
    monkeypatch.chdir(tree)
    assert [str(resolve(word)[0]) for word in ("old", "./gone", "new/*")] == ["old", "gone", "new/*"]


def test_a_matrix_is_all_runs_of_one_command(tree):
    assert names(resolve("last", MATRIX)) == list(RUNS[:3])
    assert names(resolve("last~1", MATRIX)) == list(RUNS[3:])
    assert names(resolve(OLD, MATRIX)) == list(RUNS[3:])


@pytest.mark.parametrize(("unit", "says"), [(MATRIX, "3 matrices"), (PASS, "1 profiling pass"), (RUN, "6 runs")])
def test_too_far_back_names_how_many_of_what_there_are(tree, unit, says):
    with pytest.raises(RequestError, match=f"holds {says};"):
        resolve("last~9", unit)


def test_the_last_pass_is_not_the_last_run(tree):
    assert names(resolve("last", PASS)) == [RUNS[2]]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("2026", f"2026 begins the ids of 5 runs: {RUNS[0]}, {RUNS[1]} and 3 more; name one"),
        ("resnet18-2cpu", f"is neither a path nor the beginning of a run's id in {{tree}}; did you mean {RUNS[3]}?"),
        ("latest", "is neither a path nor the beginning of a run's id in {tree}; did you mean last?"),
        ("a", "is neither a path nor the beginning of a run's id in {tree}; `dlscale ls` lists them"),
        ("last~6", "there is no last~6: {tree} holds 6 runs;"),
    ],
)
def test_an_unknown_or_ambiguous_run_names_candidates(tree, word, says):
    with pytest.raises(RequestError) as caught:
        resolve(word)
    assert says.format(tree=tree) in str(caught.value)


@pytest.mark.parametrize("command", ["show", "rerun", "regrade", "profile", "report"])
def test_every_command_of_a_run_resolves_its_name(tree, command):
    done = dlscale(command, "nope")
    assert isinstance(done.exception, RequestError)
    assert str(done.exception).startswith("nope is neither a path nor the beginning of a run's id")


def test_a_list_fits_a_terminal_and_says_what_it_left_out(tree):
    done = dlscale("ls", "--limit", "2")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["~0", RUNS[0]], ["~1", RUNS[1]]]
    assert "320.0 images/s" in lines[0]
    assert lines[0].split()[-1] == "valid"
    assert lines[2] == "and 4 more (--limit 6 lists all)"
    assert max(map(len, lines)) <= 80


def test_a_list_is_of_the_named_folder(tree):
    done = json.loads(dlscale("ls", "--json", tree / "old").stdout)
    assert [one["run_id"] for one in done] == [RUNS[3], RUNS[4], RUNS[4]]
    assert (done[0]["throughput"], done[0]["unit"], done[0]["status"]) == (320.0, "images/s", "valid")


def test_an_unreadable_record_still_counts_in_the_numbering(tree):
    (tree / "new" / RUNS[0] / "record.json").write_text("{")
    done = dlscale("ls")
    assert "is not a run record" in done.stderr
    assert done.stdout.splitlines()[0].split()[:2] == ["~1", RUNS[1]]


def test_an_empty_place_says_what_to_do(tmp_path):
    assert "holds no run that ended" in str(dlscale("ls", tmp_path).exception)


def test_a_folder_of_which_no_record_can_be_read_is_refused(tree):
    for file in (tree / "old").rglob("record.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 999}))
    assert isinstance(dlscale("ls", tree / "old").exception, RequestError)
    assert dlscale("ls", tree).exit_code == 0


def test_one_run_has_its_figure_with_the_number_of_its_runs(tree):
    lines = dlscale("show", RUNS[4]).stdout.splitlines()
    shown = {line[:15].strip(): line[15:].strip() for line in lines}
    assert shown["run"] == RUNS[4]
    assert shown["images/s"] == "320.0 (1 run)"
    assert shown["validity"] == "valid"
    assert f"{tree / 'old' / RUNS[4]}: record.json" in lines[-1]
    assert len(lines) < 24


def test_truncated_output_is_reported(tree):
    """Only the record showed it: a log truncated within a line looked complete."""
    one = record(run_id=RUNS[4])
    outcome = one.outcome.model_copy(update={"cut": (f"dlscale-{RUNS[4]}-worker0",)})
    write_record(tree / "old" / RUNS[4], one.model_copy(update={"outcome": outcome}))
    assert "the log of worker0 was cut where a line was longer than is kept" in " ".join(
        dlscale("show", RUNS[4]).stdout.split()
    )


def test_repeats_are_pooled_and_an_invalid_run_shows_no_figure(tree):
    assert "320.0 (2 runs)" in dlscale("show").stdout
    write_record(tree / "old" / RUNS[3], record(run_id=RUNS[3], status="invalid"))
    shown = dlscale("show", RUNS[3]).stdout
    assert "images/s" not in shown
    assert "invalid" in shown
    assert "made up" in shown


def test_seconds_of_inference_are_not_called_training():
    run = next((Path(__file__).parents[3] / "results/h200/inference").glob("*/record.json")).parent
    shown = dlscale("show", run)
    assert shown.exit_code == 0
    assert "inference time" in shown.stdout
    assert "training time" not in shown.stdout


def test_the_record_itself_is_the_json_of_a_run(tree):
    assert json.loads(dlscale("show", "--json").stdout)["run_id"] == RUNS[0]


def test_a_rerun_leaves_the_same_choices_to_the_suite(tree, monkeypatch, asked):
    monkeypatch.setattr("sys.argv", ["dlscale", "rerun", RUNS[4]])
    done = dlscale("rerun", RUNS[4])
    assert done.exit_code == 0, done.output
    ((request, command),) = asked
    assert (request.framework, request.version, request.model, request.engine) == (
        "mxnet",
        "1.9.1",
        "resnet18",
        "docker",
    )
    assert command[:2] == ("dlscale", "bench")
    assert "again: dlscale bench --framework=mxnet" in done.stderr


@pytest.mark.parametrize("typed", [("--out=/of/another",), ("--out", "/of/another")])
@pytest.mark.parametrize("out", ["", "here"])
def test_a_rerun_is_recorded_on_this_machine(tree, asked, typed, out):
    """Prevents records in a folder of the first run's machine, which may not exist on this one."""
    found = record(run_id="elsewhere")
    command = ("dlscale", "bench", "--framework=mxnet", *typed, "--repeat=2")
    provenance = found.provenance.model_copy(update={"command": command})
    (tree / "elsewhere").mkdir()
    write_record(tree / "elsewhere", found.model_copy(update={"provenance": provenance}))
    done = dlscale("rerun", tree / "elsewhere", *([f"--out={out}"] if out else []))
    assert done.exit_code == 0, done.output
    ((request, _),) = asked
    assert (request.out, request.repeat) == (Path(out) if out else None, 2)
    assert "another" not in done.stderr


def test_a_day_splits_runs_and_drops_earlier_ones_without_a_later_run_of_their_cell(tree):
    before, after = by_name.since(datetime(2026, 1, 2, tzinfo=timezone.utc), None)
    assert names(before) == [RUNS[4]]
    assert names(after) == list(RUNS[:3])


def test_compare_takes_a_day_or_the_last_commands(tree):
    for words in (("last~1", "last"), ("--since=2026-01-02",), ("--since=2026-01-02", tree)):
        done = dlscale("compare", *words, "--json")
        assert done.exit_code == 0, done.output
        assert len(json.loads(done.stdout)["pairs"]) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--since=last week",), "SINCE=last week is not a day; write for example yesterday or 20"),
        (("--since=today",), "no run before 20"),
        (("last", "last~1", "--since=today"), "B=last~1 names another; leave B out"),
    ],
)
def test_a_day_that_splits_nothing_is_refused(tree, words, says):
    assert says in str(dlscale("compare", *words).exception)


@pytest.mark.parametrize("what", ["frameworks", "models", "strategies", "studies"])
def test_names_to_type_are_never_cut_on_a_narrow_screen(what, monkeypatch):
    names = [next(iter(one.values())) for one in json.loads(dlscale("list", what, "--json").stdout)]
    assert names
    wide = dlscale("list", what).stdout
    assert all(name in wide for name in names)
    monkeypatch.setattr(catalog, "open_screen", lambda: console.open_console(width=80))
    lines = dlscale("list", what).stdout.splitlines()
    assert set(names) <= {line.split(" ")[0] for line in lines}
    assert max(map(len, lines)) <= 80


def test_models_have_a_command_of_their_own():
    assert dlscale("models").stdout == dlscale("list", "models").stdout
    assert "resnet50 " in dlscale("models").stdout


def test_the_program_alone_helps_with_five_examples_on_one_screen_and_says_its_version():
    done = dlscale()
    assert done.exit_code == 0
    assert len([line for line in done.stdout.split("Examples:")[1].splitlines() if "dlscale" in line]) == 5
    assert len(lines := done.stdout.splitlines()) <= 24
    assert max(map(len, lines)) <= 80
    assert dlscale("--version").stdout == f"dlscale {__version__}\n"


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        ("bench --framework py", ["pytorch"]),
        ("bench --model resnet50", ["resnet50", "resnet50-imagenet-stem"]),
        ("bench --strategy m", ["mirrored", "multiworker"]),
        ("bench --precision bf", ["bf16"]),
        ("ablate --model wgan-", ["wgan-gp", "wgan-nobn"]),
        (f"show {OLD}", list(RUNS[3:])),
        ("profile la", ["last"]),
        ("list st", ["strategies", "studies"]),
    ],
)
def test_a_shell_completes_names_of_the_catalogue(tree, words, offers):
    asked = {
        "_DLSCALE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"dlscale {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    done = RUNNER.invoke(cli.app, [], env=asked, prog_name="dlscale")
    assert done.stdout.split() == offers


@pytest.mark.parametrize(
    ("words", "model", "framework"),
    [
        (["resnet50"], "resnet50", None),
        (["TF", "ResNet-50"], "resnet50", "tensorflow"),
        (["vgg16", "--framework=torch"], "vgg16", "pytorch"),
    ],
)
def test_a_bare_model_name_is_accepted_with_a_notice(asked, words, model, framework):
    done = dlscale("bench", "--dry-run", *words)
    assert done.exit_code == 0, done.output
    ((request, _),) = asked
    assert (request.model, request.framework, request.command) == (model, framework, ())
    assert f"is taken as MODEL={model}" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resnet51"], "unknown MODEL 'resnet51'; did you mean resnet50?"),
        (["resnet50", "--model=lenet"], "resnet50 and --model=lenet are both given; leave one of them out"),
        (["pytorch", "resnet50", "lenet"], "MODEL is given 2 times: resnet50, lenet;"),
        (["mxnet", "torch"], "FRAMEWORK is given 2 times: mxnet, torch;"),
        (["WORKER=2"], "unknown variable 'WORKER'; did you mean WORKERS?"),
        (["WORKERS=2", "--workers=1"], "WORKERS=2 and --workers are both given; leave one of them out"),
        (["WORKERS=2", "WORKERS=1"], "WORKERS is given twice; leave one of them out"),
        (["env", "A=1", "python3", "x.py"], "'env A=1 python3 x.py' is a command without an image to run it in"),
        (["resnet50", "train.py"], "'resnet50 train.py' is a command without an image to run it in"),
        (["--json", "--dry-run"], "--dry-run prints command lines, and --json the figures of runs"),
    ],
)
def test_a_bare_word_that_is_no_model_is_refused(words, says):
    assert str(dlscale("bench", *words).exception).startswith(says)


def test_a_variable_of_make_is_an_option(asked):
    done = dlscale("bench", "--dry-run", "WORKERS=1,2", "OVERSUBSCRIBE=1", "XLA=0", "TIMEOUT=2h", "mxnet", "lenet")
    assert done.exit_code == 0, done.output
    ((request, _),) = asked
    assert (request.workers, request.oversubscribe, request.xla, request.timeout_s) == ((1, 2), True, False, 7200)
    assert (request.framework, request.model, request.command) == ("mxnet", "lenet", ())
    assert "WORKERS=1,2 is taken as --workers=1,2" in done.stderr
    assert dlscale("bench", "--dry-run", "--image=i:1", "--", "WORKERS=2", "train.py").exit_code == 0
    assert asked[1][0].command == ("WORKERS=2", "train.py")


@pytest.mark.parametrize("typed", [("resnet50",), ("WORKERS=1", "resnet50"), ("MODEL=resnet50",)])
def test_an_abbreviated_command_is_run_again(tree, asked, typed):
    """The suite refused its own recorded command: a bare model name next to the --model that it added."""
    found = record(run_id="short")
    trial = found.trial.model_copy(update={"model": "resnet50"})
    provenance = found.provenance.model_copy(update={"command": ("dlscale", "bench", *typed)})
    (tree / "short").mkdir()
    write_record(tree / "short", found.model_copy(update={"trial": trial, "provenance": provenance}))
    done = dlscale("rerun", tree / "short")
    assert done.exit_code == 0, done.output
    ((request, _),) = asked
    assert (request.model, request.command) == ("resnet50", ())


def test_bare_words_with_an_image_are_a_command(asked):
    assert dlscale("bench", "--dry-run", "--image=i:1", "--", "resnet50").exit_code == 0
    ((request, _),) = asked
    assert (request.model, request.command) == (None, ("resnet50",))


def leave(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        write_record(folder / name, record(run_id=name))
    return folder


def found_at(*places):
    return [directory for directory, _ in runs_at(*map(str, places)).runs]


@pytest.mark.parametrize("copy", ["a-copy", "z-copy", "backup/b", "z/backup/b"])
def test_a_copy_is_left_out_for_the_directory_that_has_the_name_of_the_run(tmp_path, copy):
    leave(tmp_path, "b", "c")
    shutil.copytree(tmp_path / "b", tmp_path / copy)
    found = runs_at(str(tmp_path))
    assert [directory.name for directory, _ in found.runs] == ["b", "c"]
    assert found.runs[0][0] == tmp_path / "b"
    assert found.skipped == (
        f"{tmp_path / copy}: left out, it holds the same run as {tmp_path / 'b'}, which counts once",
    )


def test_a_link_is_left_out_in_favour_of_its_target(tmp_path):
    leave(tmp_path / "later", "b")
    (tmp_path / "chosen").mkdir()
    (tmp_path / "chosen" / "b").symlink_to(tmp_path / "later" / "b")
    assert found_at(tmp_path) == [tmp_path / "later" / "b"]
    assert found_at(tmp_path / "chosen") == [tmp_path / "chosen" / "b"]


def test_places_that_overlap_hold_each_run_once(tmp_path):
    leave(tmp_path / "a", "b", "c")
    found = runs_at(str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b"))
    assert [directory.name for directory, _ in found.runs] == ["b", "c"]
    assert found.skipped == ()


def test_a_readable_copy_stands_in_for_a_damaged_run(tmp_path):
    leave(tmp_path, "b")
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    (tmp_path / "b" / "record.json").write_bytes(b"\xff")
    found = runs_at(str(tmp_path))
    assert [directory.name for directory, _ in found.runs] == ["copy"]
    assert [sentence.partition(": ")[0] for sentence in found.skipped] == [str(tmp_path / "b" / "record.json")]


def test_runs_of_a_folder_are_counted_once_too(tmp_path):
    """A baseline and its copy counted as two baselines of a study."""
    leave(tmp_path, "b")
    (tmp_path / "latest").symlink_to("b")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "record.json").write_bytes(b"\xff")
    assert [directory.name for directory, _ in records_under(tmp_path)] == ["b"]


def test_only_a_path_that_does_not_exist_is_a_pattern(tmp_path):
    """`compare` and `query` did not find a folder named `old [x]`."""
    leave(tmp_path / "old [x]", "b")
    leave(tmp_path / "old x", "c")
    assert found_at(tmp_path / "old [x]") == [tmp_path / "old [x]" / "b"]
    assert found_at(tmp_path / "old [xyz]") == [tmp_path / "old x" / "c"]
    assert found_at(tmp_path / "old*") == [tmp_path / "old [x]" / "b", tmp_path / "old x" / "c"]


@pytest.mark.parametrize("place", ["~no-such-user/x", "x" * 300, "none*"])
def test_a_missing_path_gives_one_sentence(place):
    with pytest.raises(RequestError, match="does not exist; name a run directory or a folder of them"):
        runs_at(place)
