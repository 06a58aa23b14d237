"""What `kill -9` of the runner leaves behind. Prevents: containers, networks and keys that stay until the next `bench`, or accumulate; a
job that outlives its runner; a half-written record or plan; a `bench` that removes a live runner's containers as a dead one's.

`make torture KILLS=200` kills more often than `make test`, at the same moments and more.
"""

import pytest
from commands import QUICK
from killed import check_whole, deeds_of, how_many, kill

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER

KILLS = how_many(20)
# Horovod over emulated nodes has everything: a baseline, a network, keys, daemons, links, and containers that share namespaces.
RUN = (
    "--framework=mxnet",
    "--device=cpu",
    "--workers=2",
    "--nodes=2",
    "--link-rate=1gbit",
    "--strategy=horovod",
    *QUICK,
)


def left(client, pid):
    """Containers, volumes and networks of the runner with this process id, in any state."""
    owned = {"filters": {"label": LABEL_RUNNER}}
    containers = client.api.containers(all=True, **owned)
    volumes = client.api.volumes(**owned)["Volumes"] or []
    found = [*containers, *volumes, *client.api.networks(**owned)]
    return [one for one in found if int(one["Labels"][LABEL_RUNNER].split(".")[-2]) == pid]


@pytest.fixture(scope="module")
def campaign(client, tmp_path_factory):
    """Kill runners, several concurrently, that share a results folder: (folder, their process ids)."""
    out = tmp_path_factory.mktemp("kills")
    words = (*RUN, f"--out={out}")
    return out, kill(words, deeds_of(words), left=lambda pid: left(client, pid), count=KILLS, at_once=4)


def test_a_killed_run_leaves_no_half_written_file(campaign, dlscale):
    """Once, `regrade` called a results folder damaged, and files grew by four MiB per kill."""
    out, killed = campaign
    assert len(killed) == KILLS
    check_whole(out)
    done = dlscale("regrade", out)
    assert done.code == 0, done.stderr
    assert not list(out.rglob(".reserve"))


def test_nothing_is_left_in_the_engine_for_the_next_bench_to_remove(campaign, client, dlscale):
    """Once, 42 of 61 kills left containers or a network, until the engine ran out of addresses; private keys of a dead run stayed in a volume."""
    out, killed = campaign
    assert [one for pid in killed for one in left(client, pid)] == []
    assert client.volumes.list(filters={"label": LABEL_RUN}) == []
    done = dlscale("bench", "--framework=mxnet", "--device=cpu", "--workers=1", out=out)
    assert done.code == 0, done.stderr
    assert "removed what killed runs had left" not in done.stderr
    assert list(out.rglob(".*")) == []
