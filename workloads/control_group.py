"""CPU time and memory used by this process' control group, under cgroup v1 and v2 (cgroups(7)).

Standard library and syntax of Python 3.6 only, so that it works in any image. In a container the group is the container's own.
"""

from pathlib import Path

NOTHING = {"cpu_s": None, "memory_bytes": None, "memory_peak_bytes": None}
# v1 files, in nanoseconds and bytes; the peak is since the group's creation, and includes page cache, as memory does.
V1 = {
    "cpu_s": ("cpuacct", "cpuacct.usage"),
    "memory_bytes": ("memory", "memory.usage_in_bytes"),
    "memory_peak_bytes": ("memory", "memory.max_usage_in_bytes"),
}

# A limit, and the usage that counts against it.
LIMIT_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
LIMIT_V2 = ("memory.max", "memory.current")


def usage(root="/"):
    """Read ``{cpu_s, memory_bytes, memory_peak_bytes}``; None if the kernel does not report a value, or only that of the whole host.

    `root` is the parent of the /proc and /sys to read.
    """
    found = dict(NOTHING)
    for controllers, group in _groups(Path(root)):
        if controllers is None:
            found.update(_v2(group))
        for name, (controller, file) in V1.items():
            if controllers and controller in controllers:
                value = _number(group / file)
                found[name] = value / 1e9 if value is not None and name == "cpu_s" else value
    return found


def free_bytes(root="/"):
    """Bytes that this process may still allocate: the minimum of the host's available memory and what its groups' limits leave."""
    lines = (Path(root) / "proc/meminfo").read_text(encoding="ascii").splitlines()
    free = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    for controllers, group in _groups(Path(root)):
        if controllers is None or "memory" in controllers:
            names = LIMIT_V2 if controllers is None else LIMIT_V1
            limit, used = (
                _number(group / name) for name in names
            )  # without a limit, v2 says "max" and v1 far more than there is
            if limit is not None and used is not None:
                free.append(max(0, limit - used))
    return min(free)


def _groups(root):
    """(controllers, directory) of this process' own groups; controllers are None under v2. Omits v1 groups that are the whole host's."""
    own_paths = {}
    for line in (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        own_paths.update(dict.fromkeys(controllers.split(","), path))
    for line in (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        (top, place), (kind, _, options) = before.split()[3:5], after.split(" ", 2)
        mount = root / place.lstrip("/")
        if kind == "cgroup2" and "" in own_paths:
            yield None, _below(mount, top, own_paths[""])
        if kind == "cgroup":
            for controller in options.split(","):
                if own_paths.get(controller, "/") != "/":
                    yield [controller], _below(mount, top, own_paths[controller])


def _v2(group):
    """Read a v2 group; the root group has none of these files but `cpu.stat`, the whole host's."""
    memory = _number(group / "memory.current")
    if memory is None:
        return {}
    fields = dict(line.split() for line in (group / "cpu.stat").read_text(encoding="ascii").splitlines())
    peak = _number(group / "memory.peak")  # from Linux 5.19 on
    return {"cpu_s": int(fields["usage_usec"]) / 1e6, "memory_bytes": memory, "memory_peak_bytes": peak}


def _below(mount, top, path):
    """Directory of a group if `top` is the mounted group; a container sees its own group as the root."""
    inside = path[len(top) :] if top != "/" and path.startswith(top) else path
    return mount / inside.lstrip("/")


def _number(path):
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
