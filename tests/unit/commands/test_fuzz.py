"""Prevents: a traceback, exit code 1, anything started, or a file outside of the given folder, for any arguments, hosts files and records.

Two hundred cases, each generated from its seed alone; a failure prints its seed and the command line.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
import typer

from runner.cluster.hosts import endpoint
from runner.commands import cli
from runner.engines.docker import DockerEngine
from runner.engines.local import LocalEngine
from runner.engines.process import CommandError

ROOT = Path(__file__).parents[3]
CASES = 200
NASTY = (
    "", " ", "0", "-1", "1.5", "1e9", "9" * 30, "9" * 5000, "\N{FULLWIDTH DIGIT ONE}", "nan", "inf", "0x10", "1_0", "+1", "--", "=", ",",
    "x" * 300, "x" * 5000, "../../x", "/dev/null", "/proc/self/mem", "/etc/shadow/x", ".", "a\nb", "\x1b[31m", "\u00e9\u202e", "1,,2",
    "1,-1", "a:b:c", "a:99999999999", "$(touch x)", "%s", "{}", "[x](y)", "None", "true", "1gbit;rm", "a b", "\udcff", "*", "~", "~nobody/x",
)  # fmt: skip
YAML = (
    "",
    "\n",
    "  ",
    ": ",
    "- ",
    "&a ",
    "*a",
    "{",
    "[" * 60,
    "\0",
    "\t",
    "9" * 30,
    "!!python/object:os.system ",
    *NASTY[:12],
)
NUMBERS = (None, True, 0, -1, 10**20, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf"), "9" * 50, "nan")
TEXTS = ("", "x" * 300, "../../evil", "/tmp/evil", "\x1b]0;t\x07\x9b2J", "\ud800", "a\0b", "*_`<b>|[x](y)\n# x")
WRONG = (*NUMBERS, *TEXTS, [], {}, [[[]]], {"a": {}})
BENCH = ("bench", "--dry-run", "--device=cpu", "--engine=venv", "--framework=mxnet", "--model=lenet")
# None of these is complete enough to start anything.
OTHERS = (
    ("compare", "{a}", "{b}", "--fail-on-regression={x}"),
    ("compare", "{x}", "{b}"),
    ("query", "{x}"),
    ("query", "SELECT * FROM runs", "--in={x}"),
    ("query", "SELECT * FROM '{x}'", "--in={a}"),
    ("report", "{x}", "--out={out}"),
    ("report", "{a}", "--format={x}.", "--out={out}"),
    ("regrade", "{x}"),
    ("profile", "{x}"),
    ("published", "--source={x}"),
    ("published", "--model={x}"),
    ("reproduce", "{x}", "--dry-run"),
    ("reproduce", "uw-hardware", "--dry-run", "--device=cpu", "--cells={x}", "--scale=small"),
    ("data", "sample", "{out}/sample", "--images=1{x}.", "--seed={x}"),
    ("data", "sample", "{out}/sample", "--side={x}-"),
    ("data", "pack", "{x}", "--out={out}/{x}"),
    ("overhead", "--framework=mxnet", "--repeat=0{x}."),
    ("ablate", "--workers=-{x}", "--batches={x}"),
    ("images", "load", "{x}"),
    ("doctor", "--hosts=/{x}/hosts.yaml"),
)
READERS = (
    ("regrade", "{in}"),
    ("report", "{in}", "--out={out}"),
    ("report", "{in}", "--format=mllog", "--out={out}"),
    ("compare", "{a}", "{b}"),
    ("compare", "--markdown", "{a}", "{b}"),
    ("query", "SELECT * FROM runs, windows, losses LIMIT 3", "--in={in}"),
    ("query", "--csv", "SELECT * FROM telemetry", "--in={in}"),
    ("query", "--json", "SELECT * FROM runs", "--in={in}"),
    ("profile", "{in}"),
)
HOSTS = """\
link: {rate: 1gbit, delay: 0.2ms}
hosts:
  - name: a.invalid
    engine: ssh://bench@a.invalid:22
    slots: 2
    cpus: 4
    memory_mib: 8192
    interfaces: {ethernet: {name: eno1, address: 10.1.0.1}}
  - name: b.invalid
    slots: 2
    gpus: {count: 2, model: NVIDIA H200, compute_capability: '9.0', memory_mib: 100}
    hcas: ['mlx5_0:1']
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Two complete runs of one training, a study and an overhead; each case gets a fresh copy."""
    place = tmp_path_factory.mktemp("records")
    for run in sorted(path.parent for path in (ROOT / "results" / "epyc-2core").glob("*/record.json"))[:2]:
        shutil.copytree(run, place / run.name)
    shutil.copy(ROOT / "tests" / "golden" / "studies" / "made-up.reproduction.json", place)
    shutil.copy(next((ROOT / "results" / "h200" / "overhead").glob("overhead-*.json")), place)
    return place


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A case's folders, outside of the checkout; no process is started, and no host is contacted."""
    for name in ("in", "out", "cwd"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("DLSCALE_CACHE", str(tmp_path / "cache"))

    def started(*_, **__):
        raise AssertionError("something was started")

    def unreachable(argv, **_):
        raise CommandError(argv, 255, "no route to host")

    for engine in (LocalEngine, DockerEngine):
        monkeypatch.setattr(engine, "start", started)
    monkeypatch.setattr(endpoint, "open_tunnel", unreachable)
    for module, own in ((cli.console, "discard_after_hangup"), (cli.interrupts, "listen"), (cli.interrupts, "ignore")):
        monkeypatch.setattr(module, own, lambda: None)
    return tmp_path


def flags():
    """The flags of `bench` that take a value."""
    bench = typer.main.get_command(cli.app).commands["bench"]
    return [each.opts[0] for each in bench.params if each.param_type_name == "option" and not each.is_flag]


def with_flags(rng, place, _records):
    chosen = rng.sample(flags(), rng.choice((1, 1, 1, 2, 3)))
    return [*BENCH[: rng.choice((2, len(BENCH)))], *(f"{flag}={rng.choice(NASTY)}" for flag in chosen)]


def with_words(rng, place, records):
    runs = sorted(path.parent for path in records.glob("*/record.json"))
    words = {"{x}": rng.choice(NASTY), "{out}": place / "out", "{a}": runs[0], "{b}": runs[1]}
    return [fill_placeholders(word, words) for word in rng.choice(OTHERS)]


def fill_placeholders(word, words):
    for name, value in words.items():
        word = word.replace(name, str(value))
    return word


def with_hosts(rng, place, _records):
    text = HOSTS
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(text))
        end = min(len(text), at + rng.choice((0, 1, 5, 40)))
        insert = rng.choice(YAML)
        text = text[:at] + insert + text[end:]
    path = place / "in" / rng.choice(("hosts.yaml", "hosts.yml", "hosts"))
    latin = text.encode("latin-1", "replace")[: rng.randrange(400)]
    path.write_bytes(rng.choice((text.encode(), text.encode(), text.encode("utf-16"), latin)))
    return [*BENCH[:2], "--framework=mxnet", "--model=lenet", "--workers=4", f"--hosts={path}"]


def with_records(rng, place, records):
    shutil.copytree(records, place / "in", dirs_exist_ok=True)
    runs = sorted(path.parent for path in (place / "in").glob("*/record.json"))
    path = rng.choice((*[runs[0] / "record.json"] * 6, *runs[0].glob("*.*"), *(place / "in").glob("*.json")))
    rng.choice((*[mutate] * 6, truncate, nest, recode, replace, make_loop, make_folder, bump_schema))(rng, path)
    words = {"{in}": place / "in", "{out}": place / "out", "{a}": runs[0], "{b}": runs[1]}
    return [fill_placeholders(word, words) for word in rng.choice(READERS)]


def mutate(rng, path):
    """Change the type of one value, or remove it."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    at = rng.randrange(len(lines))
    fields = json.loads(lines[at])
    holder, keys = fields, []
    while isinstance(holder, dict | list) and holder and (not keys or rng.random() < 0.8):
        keys.append((holder, rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))))
        holder = keys[-1][0][keys[-1][1]]
    owner, key = keys[-1]
    if rng.random() < 0.15:
        del owner[key]
    else:
        owner[key] = rng.choice(WRONG)
    lines[at] = json.dumps(fields)
    path.write_text("\n".join(lines) + "\n")


def truncate(rng, path):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def nest(rng, path):
    path.write_text(rng.choice(("[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "[" * 500 + "]" * 500)))


def recode(rng, path):
    bom = b"\xef\xbb\xbf" + path.read_bytes()
    path.write_bytes(rng.choice((path.read_text().encode("utf-16"), bom, b"\xff\x00" * 99, b"\0" * 99)))


def replace(rng, path):
    path.write_text(rng.choice(("", "null", "[]", "{}", "1", '"x"', "NaN", "1" * 5000, "{}\n{}")))


def make_loop(rng, path):
    path.unlink()
    path.symlink_to(path.name)
    (path.parent / "loop").symlink_to(path.parent)


def make_folder(rng, path):
    path.unlink()
    path.mkdir()


def bump_schema(rng, path):
    path.write_text(json.dumps({"schema": 99, "run_id": "r", "what": "is not known yet"}))


def outside(place):
    """The contents of the folders that a case must not write to."""
    return {
        path
        for path in (*place.iterdir(), *(place / "cwd").rglob("*"), *place.parent.iterdir())
        if path.name not in ("out", "cache")
    }


@pytest.mark.parametrize("seed", range(CASES))
def test_any_input_is_answered_without_a_traceback_or_side_effects(seed, place, records, monkeypatch, capsys):
    """Records with a wrong type, a huge number or an escape code in one field caused a traceback, or removed all other records' tables."""
    rng = random.Random(seed)
    argv = rng.choice((*[with_flags] * 4, *[with_words] * 3, *[with_hosts] * 2, *[with_records] * 5))(
        rng, place, records
    )
    before = outside(place)
    monkeypatch.setattr(sys, "argv", ["dlscale", *argv])
    monkeypatch.setattr(cli.interrupts, "_received", [])
    case = f"seed {seed}: {argv}"
    try:
        cli.main()
    except SystemExit as ended:
        said = capsys.readouterr()
        assert ended.code in (0, 2), f"{case}\n{said.err}"
        assert "Traceback" not in said.err, case
        assert not {"\x1b", "\x07", "\x9b"} & {*said.out, *said.err}, case
    except BaseException as error:
        raise AssertionError(case) from error
    assert outside(place) == before, case
