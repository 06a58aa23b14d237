"""Prevents: a mistyped key that is silently ignored, a duplicate key of which the last wins, an error in a 300-line file without the
line, and a file that crashes the process or is never read to its end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field, field_validator

from runner.core import yamlfile
from runner.core.errors import RequestError
from runner.core.frozen import Frozen


class Entry(Frozen):
    version: str
    python: str = "3.11"
    size_mib: int | None = None

    @field_validator("version")
    @classmethod
    def _not_latest(cls, value: str) -> str:
        if value == "latest":
            raise ValueError("A moving tag is no version")
        return value


class File(Frozen):
    images: dict[str, tuple[Entry, ...]]
    limit: int = Field(default=1, gt=0)
    extra: Entry | None = None


GOOD = """\
# comment
images:
  mxnet:
    - version: 1.9.1
      size_mib: 610
    - version: "1.10"
limit: 3
"""


def read(tmp_path: Path, text: str | bytes) -> File:
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return yamlfile.load(path, File)


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(RequestError) as caught:
        read(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_a_valid_file_becomes_the_type(tmp_path):
    assert read(tmp_path, GOOD) == File(
        images={"mxnet": (Entry(version="1.9.1", size_mib=610), Entry(version="1.10"))}, limit=3
    )


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("size_mib", "sise_mib", "file.yaml:5: unknown key 'sise_mib' in images.mxnet[0]; did you mean 'size_mib'?"),
        ("size_mib", "zzz", "file.yaml:5: unknown key 'zzz' in images.mxnet[0]; known keys: python, size_mib, version"),
        ("limit", "limits", "file.yaml:7: unknown key 'limits' in the top level; did you mean 'limit'?"),
        ("size_mib: 610", "size_mib: big", "file.yaml:5: images.mxnet[0].size_mib is 'big': input should be a valid"),
        ('- version: "1.10"', "- python: '3.11'", "file.yaml:6: key 'version' is missing in images.mxnet[1]; add it"),
        # 1.10 unquoted is the number 1.1: the wrong release would be installed.
        ('"1.10"', "1.10", "file.yaml:6: images.mxnet[1].version is 1.1: input should be a valid string; correct it"),
        ("version: 1.9.1", "version: latest", "file.yaml:4: images.mxnet[0].version is 'latest': a moving tag is no"),
        ("limit: 3", "limit: 0", "file.yaml:7: limit is 0: input should be greater than 0; correct it"),
        ("size_mib: 610", "version: 2.0.0", "file.yaml:5: is not valid YAML (key 'version' is already on line 4)"),
        ("limit: 3", "extra:\n  version: a\n  pyton: b", "file.yaml:9: unknown key 'pyton' in extra; did you mean"),
        ("- version: 1.9.1", "- versoin: 1.9.1", "file.yaml:4: unknown key 'versoin' in images.mxnet[0]; did you mean"),
        ("limit: 3", "? [a, b]\n: 3", "file.yaml:7: is not valid YAML (a key is not a plain word); correct this line"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path, old, new, sentence):
    assert old in GOOD
    assert refusal(tmp_path, GOOD.replace(old, new, 1)).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("images: {}\nlimit: [1, 2\n", ":3: is not valid YAML ("),
        (b"images: \x00", ": is not valid YAML ("),
        (b"images: \xff", ": is not UTF-8 text (byte 8); save it as UTF-8"),
        ("# nothing\n", ":1: is empty; expected the keys extra, images, limit"),
        ("- 1\n", ":1: the top level is [1]: expected `images:`"),
        # A recursion, ValueErrors in PyYAML, and a stack overflow in libyaml, which crashes the process.
        ("images: &a\n  mxnet: *a\n", ":2: *a is inside its own value; write that value out"),
        ("limit: 2020-13-45\n", ":1: is not valid YAML ('2020-13-45' is not a valid timestamp, put it in quotes"),
        ("2020-13-45: 1\n", ":1: is not valid YAML ('2020-13-45' is not a valid timestamp, put it in quotes"),
        ("images:\n  a: !!bool perhaps\n", ":2: is not valid YAML ('perhaps' is not a valid bool, put it in quotes"),
        ("limit: !!int ''\n", ":1: is not valid YAML ('' is not a valid int, put it in quotes"),
        ("limit: " + "9" * 5000, ":1: is not valid YAML ('999"),
        ("images: " + "[" * 100_000, ":1: is nested deeper than 50 levels, unlike any file of the suite"),
    ],
)
def test_files_of_another_kind_or_that_crash_the_parser_are_refused(tmp_path, text, sentence):
    assert refusal(tmp_path, text).startswith(f"file.yaml{sentence}")


def test_a_file_that_is_absent_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"absent.yaml: can't be read \(No such file or directory\)"):
        yamlfile.load(tmp_path / "absent.yaml", File)


def test_aliases_count_as_the_values_that_they_expand_to(tmp_path):
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    assert "has more than 100000 values" in refusal(tmp_path, "\n".join(lines))
    entry = "a: [&entry {version: b}]\n  c: [*entry, *entry]"
    assert len(read(tmp_path, f"images:\n  {entry}\n").images["c"]) == 2


def test_a_huge_file_is_refused_unread(tmp_path):
    with (tmp_path / "file.yaml").open("wb") as file:
        file.truncate(10**8)
    with pytest.raises(RequestError, match="has more than 10000000 bytes"):
        yamlfile.load(tmp_path / "file.yaml", File)
