"""What this process' control group has used: CPU time and memory, under cgroup v1 and v2 (cgroups(7)).

Standard library and syntax of Python 3.6 only, so that it works in any image. In a container the group is the container's own.
"""

from pathlib import Path

NOTHING = {"cpu_s": None, "memory_bytes": None, "memory_peak_bytes": None}
# Files of v1 in nanoseconds and bytes; the peak is since the group was made, and counts its page cache as memory does.
V1 = {
    "cpu_s": ("cpuacct", "cpuacct.usage"),
    "memory_bytes": ("memory", "memory.usage_in_bytes"),
    "memory_peak_bytes": ("memory", "memory.max_usage_in_bytes"),
}


def usage(root="/"):
    """Read ``{cpu_s, memory_bytes, memory_peak_bytes}``; None for what the kernel does not tell, or tells of the whole host alone.

    `root` is that of the /proc and /sys that are read.
    """
    root = Path(root)
    own = {}
    for line in (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    found = dict(NOTHING)
    for line in (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        (top, place), (kind, _, options) = before.split()[3:5], after.split(" ", 2)
        mount = root / place.lstrip("/")
        if kind == "cgroup2" and "" in own:
            found.update(_v2(_below(mount, top, own[""])))
        if kind == "cgroup":
            for name, (controller, file) in V1.items():
                # The topmost group of v1 is the whole host's.
                if controller in options.split(",") and own.get(controller, "/") != "/":
                    value = _number(_below(mount, top, own[controller]) / file)
                    found[name] = value / 1e9 if value is not None and name == "cpu_s" else value
    return found


def _v2(group):
    """Read a group of the unified hierarchy; its topmost one has none of these files but `cpu.stat`, the whole host's."""
    memory = _number(group / "memory.current")
    if memory is None:
        return {}
    fields = dict(line.split() for line in (group / "cpu.stat").read_text(encoding="ascii").splitlines())
    peak = _number(group / "memory.peak")  # from Linux 5.19 on
    return {"cpu_s": int(fields["usage_usec"]) / 1e6, "memory_bytes": memory, "memory_peak_bytes": peak}


def _below(mount, top, path):
    """Where a group is found, when the group `top` is what is mounted; a container sees its own as the topmost one."""
    inside = path[len(top) :] if top != "/" and path.startswith(top) else path
    return mount / inside.lstrip("/")


def _number(path):
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
