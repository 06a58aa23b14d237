"""Where a job finds programs, data and what it may write to inside a container, whichever engine makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from runner.core import dataset
from runner.core.container_spec import IMAGE_USER, Mount
from runner.engines.base import Site, job_user

WORKLOADS: Final = "/dlscale/workloads"
DATA: Final = "/dlscale/data"
OUT: Final = "/dlscale/out"


class Inside:
    """The paths of a container.

    Attributes:
        workloads: the training programs: a directory of this machine, or the named volume that other machines have them in.
        beside: what else the containers are shown.
    """

    def __init__(self, workloads: Path | str, *, beside: tuple[Mount, ...] = ()) -> None:
        self.workloads = workloads
        self.beside = beside

    def site(self, data: Path | None) -> Site:
        """Programs and data are bind-mounted at fixed places."""
        return Site(python="python3", workloads=WORKLOADS, data=data and _data_target(data))

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """Programs and data, read-only, and what else there is; packed data with the directory that it lies in, where its index is."""
        found = [Mount(source=str(self.workloads), target=WORKLOADS)]
        if data:
            found.append(Mount(source=str(dataset.place(data)), target=DATA))
        return (*found, *self.beside)

    def place(self, directory: Path) -> str:
        """One fixed place: a tool writes to one directory."""
        del directory
        return OUT

    def user(self) -> str:
        """The runner's own user, so that private programs and data stay readable; the image's for root, and on other machines."""
        return job_user() if isinstance(self.workloads, Path) else IMAGE_USER


def _data_target(data: Path) -> str:
    """Where a data set appears: a folder at the fixed place, packed data under its own name in it."""
    return DATA if dataset.place(data) == data else f"{DATA}/{data.name}"
