"""What the benchmark of limits says of a command."""

import json
import subprocess
import sys

import pytest

from benchmarks import limits

MEASURE = """
import json
from benchmarks import limits
from benchmarks.harness.driver import Request
print(json.dumps({name: job(Request(quick=True, time_scale=6)) for name, job in limits.DRIVER.quick_jobs.items()}))
"""
"""In a process of its own: the peak of a command is never told as less than that of the process which starts it."""


def test_a_whole_command_is_measured_against_either_limit():
    """Starting the command takes more than 10 MB and nowhere near 1,000; the smoke problem has a plan at once."""
    parts = json.loads(subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, check=True).stdout)
    assert [name.rsplit(": ", 1)[1] for name in parts] == ["60 s", "1000 MB"]
    for part in parts.values():
        assert part["exit_code"] == 0
        assert part["objective_s"] > 0
        assert 10e6 < part["peak_bytes"] < 1000e6
    (tables,) = limits.tables(parts).values()
    assert "| vgg16, cpu-2, batch 8, milp | 1000 MB |" in tables["limits"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"exit_code": 5}, ""),
        ({"exit_code": 1}, "exit code 1"),
        ({"limit_s": 10.0, "seconds": 11.2}, ""),
        ({"limit_s": 10.0, "seconds": 11.3}, "took 11.30 s"),
        ({"limit_bytes": 250e6, "peak_bytes": 282e6}, ""),
        ({"limit_bytes": 250e6, "peak_bytes": 283e6}, "held 283 MB"),
    ],
)
def test_a_command_that_breaks_its_limit_is_complained_of(changes, fault):
    """10 s may become 10 x 1.02 + 1 = 11.2 s, and 250 MB 282 MB."""
    part = {"exit_code": 0, "objective_s": 1.0, "seconds": 1.0, "peak_bytes": 1e6, **changes}
    assert limits.complaint({"problem, solver: limit": part}) == (f"problem, solver: limit: {fault}" if fault else "")


def test_tables_say_how_much_of_a_limit_was_taken():
    """11 of 10 s, and 150 of 250 MB."""
    found = {"exit_code": 0, "objective_s": 2.0, "seconds": 11.0, "peak_bytes": 150e6}
    parts = {"p, milp: 10 s": {"limit_s": 10.0, **found}, "p, dp: 250 MB": {"limit_bytes": 250e6, **found}}
    (tables,) = limits.tables(parts).values()
    assert tables["limits"].splitlines()[2:] == [
        "| p, milp | 10 s | 11 s | 1.10x | 2.0 s |",
        "| p, dp | 250 MB | 150 MB | 0.60x | 2.0 s |",
    ]
