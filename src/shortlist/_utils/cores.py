"""Count the cores that this process may use."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
"""Where Linux mounts the control groups, which limit the CPU time of containers."""
MEMBERSHIP = Path("/proc/self/cgroup")
"""The control groups of this process."""
V1_MOUNTS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
"""Names of the folder of the CPU controller in version 1 of the control groups."""


def usable_cores() -> int:
    """Return the number of cores that this process may use.

    This is the number of cores in the affinity mask of the process, or its CPU quota if that is
    lower. A quota of 1.5 cores counts as two.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # Neither macOS nor Windows limits a process to some cores by default.
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _own_quota())))


@cache
def _own_quota() -> float:
    """Return the CPU quota of this process. It is read once: containers keep their quota."""
    return cpu_quota(MEMBERSHIP, CGROUPS)


def cpu_quota(membership: Path, cgroups: Path) -> float:
    """Return the CPU quota of a process in cores, for both versions of the control groups.

    The quotas of all groups that contain the group of the process apply too. If the group is not
    visible, as in a container, its files are those at the mount point.

    Parameters
    ----------
    membership : Path
        File like ``/proc/self/cgroup``.
    cgroups : Path
        Folder like ``/sys/fs/cgroup``.

    Returns
    -------
    float
        Cores; infinity if there is no quota.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return math.inf
    quota = math.inf
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for folder in _groups(cgroups, group):
                quota = min(quota, _quota_v2(folder))
        elif "cpu" in controllers.split(","):
            for name in V1_MOUNTS:
                for folder in _groups(cgroups / name, group):
                    quota = min(quota, _quota_v1(folder))
    return quota


def _groups(mount: Path, group: str) -> list[Path]:
    """Return the folders of a group and of all groups that contain it."""
    path = PurePosixPath(group.lstrip("/"))
    return [mount / parent for parent in (path, *path.parents)]


def _quota_v2(folder: Path) -> float:
    """Return the quota in the file `cpu.max`, which has the form "max 100000"."""
    return _ratio(_read(folder / "cpu.max").split())


def _quota_v1(folder: Path) -> float:
    """Return the quota in two files; it is -1 if there is none."""
    return _ratio([_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")])


def _ratio(numbers: list[str]) -> float:
    """Return the quotient of two positive numbers; infinity if they are not numbers."""
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        return math.inf
    quota, period = int(numbers[0]), int(numbers[1])
    return quota / period if quota and period else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
