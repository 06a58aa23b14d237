"""Prevents: containers of two nodes on the same cores, under either version of control groups; a rig that does not start on a machine whose
cores can't be divided.
"""

import pytest
from made_up_machine import write_tree
from testbed import groups, layout


@pytest.fixture
def node(tmp_path):
    return layout.plan(number=0, nodes=2, parent=tmp_path, core_groups=[(0, 2), (1, 3)]).nodes[1]


def made_up(tmp_path, *mounts):
    """A tree whose mountinfo lists these mounts: (type, mount point, files by name)."""
    lines = [f"{30 + n} 24 0:{n} / {place} rw,nosuid - {kind} {kind} rw" for n, (kind, place, _) in enumerate(mounts)]
    for _, place, files in mounts:
        (tmp_path / place[1:]).mkdir(parents=True)
        write_tree(tmp_path / place[1:], files)
    return write_tree(tmp_path, {"proc/self/mountinfo": "\n".join(lines)})


def test_under_v1_a_group_has_its_cores_and_the_machines_memory_nodes(tmp_path, node):
    root = made_up(
        tmp_path,
        ("cgroup", "/sys/fs/cgroup/memory", {}),
        ("cgroup", "/sys/fs/cgroup/cpuset", {"cpuset.cpus": "0-3\n", "cpuset.mems": "0-1\n"}),
        ("cgroup2", "/sys/fs/cgroup/unified", {"cgroup.controllers": ""}),
    )
    assert groups.confine(node, sys_root=root)
    group = root / "sys/fs/cgroup/cpuset/dlrig0-n2"
    assert (group / "cpuset.cpus").read_text() == "1,3"
    assert (group / "cpuset.mems").read_text() == "0-1"
    assert not (root / "sys/fs/cgroup/unified/dlrig0-n2").exists()


def test_under_v2_the_controller_is_enabled_first(tmp_path, node):
    files = {"cgroup.controllers": "cpuset cpu io memory pids", "cgroup.subtree_control": "cpu memory"}
    root = made_up(tmp_path, ("cgroup2", "/sys/fs/cgroup", files))
    assert groups.confine(node, sys_root=root)
    assert (root / "sys/fs/cgroup/cgroup.subtree_control").read_text() == "+cpuset"
    assert (root / "sys/fs/cgroup/dlrig0-n2/cpuset.cpus").read_text() == "1,3"
    assert not (root / "sys/fs/cgroup/dlrig0-n2/cpuset.mems").exists()


def test_nodes_share_cores_that_cannot_be_divided(tmp_path, node):
    unwritable = made_up(tmp_path, ("cgroup2", "/sys/fs/cgroup", {"cgroup.controllers": "cpuset"}))
    (unwritable / "sys/fs/cgroup/cgroup.subtree_control").mkdir()  # even root can't write to it
    assert not groups.confine(node, sys_root=unwritable)
    without = made_up(tmp_path / "other", ("cgroup2", "/sys/fs/cgroup", {"cgroup.controllers": "memory"}))
    assert not groups.confine(node, sys_root=without)


def test_inner_groups_come_before_outer_ones(tmp_path, monkeypatch):
    root = made_up(tmp_path, ("cgroup2", "/sys/fs/cgroup", {}))
    (root / "sys/fs/cgroup/dlrig1-n1/abc/def").mkdir(parents=True)
    (root / "sys/fs/cgroup/dlrig10-n1").mkdir()
    found = groups.hierarchies(root)
    monkeypatch.setattr(groups, "hierarchies", lambda: found)
    assert [path.name for path in groups.of_rig(1)] == ["def", "abc", "dlrig1-n1"]
    (root / "sys/fs/cgroup/dlrig1-n1/abc/cgroup.procs").write_text("17\n18\n")
    assert groups.members(groups.of_rig(1)) == {17, 18}
