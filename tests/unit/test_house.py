"""The rules of the house, held against its files.

Which room may import which is import-linter's business (pyproject.toml). Prevents: a process started by `os` outside of runner/engines/; a
file grown too long to read in one sitting; a module without a word on what it is for; this machine's package sources or paths in what others clone; a command line that loads pandas to print its
help; a Makefile variable that is no flag; a link in a document or a kept report that leads to a record or a heading that is gone.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer
from checkout import ROOT, tracked

from runner.commands.cli import app
from runner.commands.documents import make_variables

LONGEST = 600

SOURCES = sorted([*(ROOT / "runner").rglob("*.py"), *(ROOT / "workloads").rglob("*.py")])
RUNNER = [path for path in SOURCES if (ROOT / "runner") in path.parents]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

STARTS_PROCESSES_OF_OS = re.compile(r"^(system|popen|fork|forkpty|posix_spawnp?|exec[lv].*|spawn[lv].*)$")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def test_only_engines_start_processes():
    of_os = {
        (relative(path), node.attr)
        for path in RUNNER
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    }
    starting = {path for path, name in of_os if STARTS_PROCESSES_OF_OS.match(name)}
    assert {path for path in starting if not path.startswith("runner/engines/")} == set()


def test_a_file_can_be_read_in_one_sitting_and_says_what_it_is_for():
    assert [relative(path) for path in SOURCES if path.read_text(encoding="utf-8").count("\n") > LONGEST] == []
    assert [relative(path) for path in (*SOURCES, *TESTS) if not (ast.get_docstring(tree(path)) or "").strip()] == []


# Written with a bar, so that this file does not hold what it looks for.
HOSTS = [
    name.replace("|", ".")
    for name in (
        *("pypi|org", "pythonhosted|org", "pypi|nvidia|com", "anaconda|org", "download|pytorch|org"),
        *("deb|debian|org", "snapshot|debian|org", "security|debian|org", "archive|ubuntu|com"),
    )
]
# The home of PyTorch's CPU build, an optional extra source of that image, is written in the one file where versions are.
ALLOWED = {("images/versions.yaml", "download|pytorch|org".replace("|", "."))}
PLACES = [name.replace("|", "/") for name in ("|opt|wheels", "|opt|pypi", "..|shared", "|work|")]


def test_no_package_source_or_path_of_one_machine_is_handed_out():
    """Locks name versions and hashes; where to fetch them from is the business of the machine that installs."""
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        found += [(relative(path), host) for host in HOSTS if host in text]
        found += [(relative(path), place) for place in PLACES if re.search(rf"(?<![\w.]){re.escape(place)}", text)]
    assert set(found) <= ALLOWED


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], ["docker", "matplotlib", "numpy", "pandas", "psutil", "pynvml", "requests"]),
        (
            ["bench", "--dry-run", "--framework=mxnet", "--model=lenet", "--engine=venv"],
            ["docker", "matplotlib", "numpy", "pandas", "pyarrow"],
        ),
    ],
    ids=["a question", "a job"],
)
def test_what_must_begin_at_once_begins_without_the_heavy_libraries(words, heavy):
    """matplotlib, pandas, numpy and docker cost a second together."""
    code = (
        "import atexit, sys; from runner.commands.cli import main; sys.argv[0] = 'dlscale'; "
        f"atexit.register(lambda: print([name for name in {heavy} if name in sys.modules])); main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_only_one_module_makes_consoles():
    """Any other would read a name such as `[x]` as markup, and `:x:` as an emoji."""
    making = {
        relative(path)
        for path in RUNNER
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Console", "_Console")
    }
    assert making == {"runner/core/console.py"}


def test_every_makefile_variable_is_a_flag_of_plan_and_every_flag_a_variable():
    variables = make_variables((ROOT / "Makefile").read_text(encoding="utf-8"))["plan"]
    flags = {option for parameter in typer.main.get_command(app).commands["plan"].params for option in parameter.opts}
    own = {"--help", "-h", "-H"}
    # A command line can't be passed through make word for word.
    own |= {"--dialect", "--pattern", "--name", "--env", "--workdir", "--baseline", "command"}
    assert {"--" + name.lower().replace("_", "-") for name in variables} == flags - own


def test_every_make_target_is_explained():
    """`make help` lists the targets that carry a `##` comment; one without it would be invisible."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE) for name in line.split()}
    explained = set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
    assert phony == explained


def test_no_two_test_files_have_one_name():
    """pytest imports them by that name, and leaves the second one out."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def linked(document):
    return [link for link in LINK.findall(CODE.sub("", document.read_text("utf-8"))) if not ELSEWHERE.match(link)]


def anchors(document):
    """Ids that are written out, and those that a code host gives to headings."""
    text = document.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    given = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return given | set(re.findall(r'<a id="([^"]+)"', text))


def test_links_lead_somewhere():
    lost = []
    for document in tracked("*.md"):
        for link in linked(document):
            path, _, anchor = link.partition("#")
            target = document.parent / unquote(path) if path else document
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                lost.append((relative(document), link))
    assert lost == []
