"""A Podman with separate storage for tests, next to the machine's own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMITED = Path(__file__).parents[1] / "containers" / "runc_within_limits"


@contextmanager
def own_storage() -> Iterator[dict[str, str]]:
    """Yield the environment variables that select the storage, which is removed at the end.

    The folder's path is short, because Podman's sockets lie below it: if a path exceeds the kernel's limit, container exits go unnoticed.
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
