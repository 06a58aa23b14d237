"""Runs training programs under their profilers and reads the rows that they write. A library, not a script."""

import json

from probed import read
from programs import run

PREFIX = "::dlscale-rows:: "


class Pass(list):
    """Events of a job, and the rows of its table `kernels`, each a dict with its rank."""

    def __init__(self, text):
        super().__init__(read(text))
        self.rows = []
        for line in text.splitlines():
            if PREFIX in line:
                told = json.loads(line[line.index(PREFIX) + len(PREFIX) :])
                assert told["table"] == "kernels", told["table"]
                sizes = {len(values) for values in told["columns"].values()}
                assert len(sizes) == 1, "columns are not equally long"
                names = list(told["columns"])
                for values in zip(*told["columns"].values(), strict=True):
                    self.rows.append({"rank": told["rank"], **dict(zip(names, values, strict=True))})


def run_pass(*argv):
    """Run a program to completion."""
    return Pass(run(*argv))
