"""A rig: brought up, taken down, and the faults that tests inject. A rig that fails to come up is removed completely."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from runner.cluster.machine.hostfs import parse_cpu_list, read_text
from runner.core.cache import cache_dir
from runner.core.errors import RequestError
from runner.core.wire import Link
from runner.engines.process import CommandError
from testbed import groups, network, nodes, teardown
from testbed.layout import MOST_NODES, USERS, Layout, RigNode, Second, Way, hosts_yaml, plan
from testbed.tools import refuse_unfit

_CPU: Final = "/sys/devices/system/cpu"


class Rig:
    """A running rig, with nodes `n1`, `n2`, ... by name."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.link: Link | None = None
        self._listed: dict[tuple[int | None, Way], None] = {(None, "ssh"): None, (None, "unix"): None}

    @classmethod
    def up(
        cls,
        *,
        nodes: int,
        number: int = USERS[0],
        link: Link | None = None,
        second: Second = "none",
        parent: Path | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> Rig:
        """Bring a rig up, after removing the remains of any rig with the same number."""
        refuse_unfit()
        if not 1 <= nodes <= MOST_NODES:
            raise RequestError(
                f"NODES={nodes} asked of the rig, which has 1 to {MOST_NODES} nodes; NODES=0 takes it down"
            )
        layout = plan(
            number=number,
            nodes=nodes,
            parent=(parent or cache_dir() / "rig").absolute(),
            second=second,
            core_groups=core_groups(),
        )
        teardown.remove(number)
        rig = cls(layout)
        try:
            rig._bring_up(link, report)
        except BaseException as error:  # Ctrl-C too: half a rig is of no use to anybody
            with contextlib.suppress(KeyboardInterrupt):
                teardown.remove(number)
            if isinstance(error, CommandError):
                raise RequestError(
                    f"rig {number} can't be made on this machine: `{' '.join(error.argv)}` says {error.last_line!r}"
                ) from error
            raise
        return rig

    def _bring_up(self, link: Link | None, report: Callable[[str], None]) -> None:
        layout = self.layout
        layout.run.mkdir(mode=0o700, parents=True)
        (layout.run / "data").symlink_to(layout.data)  # before its target, so that the target can always be found
        layout.data.mkdir(mode=0o700, parents=True)
        report(f"network of {len(layout.nodes)} nodes")
        network.build(layout)
        self.shape(link)
        nodes.configure(layout)
        divided = [groups.confine(node) for node in layout.nodes]
        if not all(divided):
            report("this machine lets nobody divide its cores, so each node has all of them")
        report("engines and ssh servers")
        for node in layout.nodes:
            nodes.name_host(node)
            nodes.start_engine(node)
            nodes.start_ssh(node)
        for node in layout.nodes:
            nodes.await_engine(node)
            nodes.await_ssh(node)

    def down(self) -> None:
        teardown.remove(self.layout.number)

    @property
    def nodes(self) -> Sequence[RigNode]:
        return self.layout.nodes

    def hosts(self, count: int | None = None, *, way: Way = "ssh") -> Path:
        """Write a hosts.yaml of all nodes, or of the first few; `shape` updates the link limits in it."""
        self._listed[count, way] = None
        path = self.layout.hosts_file(way=way, nodes=count)
        path.write_text(hosts_yaml(self.nodes[:count], way=way, link=self.link, number=self.layout.number))
        return path

    def shape(self, link: Link | None) -> None:
        """Limit all links to a rate and delay from now on, or lift the limits; the machine's own link stays unlimited."""
        network.shape(self.layout, link)
        self.link = link
        for count, way in tuple(self._listed):
            self.hosts(count, way=way)

    def cut_link(self, name: str, interface: str = "eth0") -> None:
        """Take a node's interface down. Without `eth0`, the machine can't reach its ssh server either."""
        network.set_link(self.layout.node(name), interface, up=False)

    def restore_link(self, name: str, interface: str = "eth0") -> None:
        network.set_link(self.layout.node(name), interface, up=True)

    def stop_engine(self, name: str) -> None:
        nodes.stop_engine(self.layout.node(name))

    def kill_engine(self, name: str) -> None:
        nodes.kill_engine(self.layout.node(name))

    def start_engine(self, name: str) -> None:
        nodes.start_engine(self.layout.node(name))
        nodes.await_engine(self.layout.node(name))

    def stop_ssh(self, name: str) -> None:
        nodes.stop_ssh(self.layout.node(name))

    def start_ssh(self, name: str) -> None:
        nodes.start_ssh(self.layout.node(name))
        nodes.await_ssh(self.layout.node(name))

    def repair(self) -> None:
        """Undo every fault: all links up and unshaped, all engines and ssh servers running."""
        for node in self.nodes:
            for interface in node.addresses:
                self.restore_link(node.name, interface)
        self.shape(None)
        for node in self.nodes:
            self.start_engine(node.name)
            self.start_ssh(node.name)


def core_groups(root: Path = Path("/")) -> tuple[tuple[int, ...], ...]:
    """Logical CPUs that this process may use, grouped by physical core."""
    allowed = os.sched_getaffinity(0)
    found: dict[tuple[int, ...], None] = {}
    for cpu in sorted(allowed):
        listed = read_text(root / f"{_CPU}/cpu{cpu}/topology/thread_siblings_list".lstrip("/"))
        siblings = tuple(sibling for sibling in parse_cpu_list(listed or str(cpu)) if sibling in allowed)
        found[siblings or (cpu,)] = None
    return tuple(found)
