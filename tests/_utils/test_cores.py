"""The CPU quota of a container limits the number of cores."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from shortlist._utils import cores
from shortlist._utils.cores import cpu_quota, usable_cores


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 25000"}, 2),
        ("0::/a\n", {"a/cpu.max": "400000 100000", "cpu.max": "300000 100000"}, 3),
        ("0::/hidden/group\n", {"cpu.max": "100000 100000"}, 1),
        (
            "4:cpu,cpuacct:/a\n0::/\n",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        (
            "1:cpu:/docker/id\n",
            {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("2:cpuset:/\n0::/\n", {"cpu.max": ""}, math.inf),
        ("0::/\n", {}, math.inf),
        ("", {"cpu.max": "1 0"}, math.inf),
    ],
)
def test_quotas_of_both_versions(tmp_path, membership, files, quota):
    own = write(tmp_path, {"self": membership}) / "self"
    assert cpu_quota(own, write(tmp_path / "cgroup", files)) == quota


def test_no_control_groups(tmp_path):
    assert cpu_quota(tmp_path / "missing", tmp_path) == math.inf


@pytest.mark.parametrize(("quota", "count"), [(0.4, 1), (1.5, 2), (3.0, 3), (math.inf, 8)])
def test_a_part_of_a_core_counts_as_one(monkeypatch, quota, count):
    monkeypatch.setattr(cores, "_own_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert usable_cores() == count
