"""A Podman with a storage of the tests' own, beside what the machine has."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMITED = Path(__file__).parents[1] / "containers" / "runc_within_limits"


@contextmanager
def own_storage() -> Iterator[dict[str, str]]:
    """The variables that lead to it, all of which is removed at the end.

    Its folder has a short path: Podman's sockets lie below it, and where one is longer than the kernel takes, ends of containers go unseen.
    """
    with tempfile.TemporaryDirectory(prefix="pod-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "containers.conf").write_text(
            f'[engine]\nruntime="limited"\ncgroup_manager="cgroupfs"\nevents_logger="file"\ntmp_dir="{folder}/tmp"\n[engine.runtimes]\nlimited=["{LIMITED}"]\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver="overlay"\ngraphroot="{folder}/graph"\nrunroot="{folder}/run"\n'
        )
        found = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        try:
            yield found
        finally:
            reset = ["podman", "system", "reset", "--force"]
            subprocess.run(reset, env={**os.environ, **found}, check=True, capture_output=True)
