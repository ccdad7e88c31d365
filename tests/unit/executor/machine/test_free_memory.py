"""Free memory, of the system and of its control groups."""

import pytest

from stagecut.executor.machine.free_memory import free_memory_bytes


@pytest.fixture
def system(tmp_path):
    """A system with 8 MB available, of these control groups and files below them."""

    def built(groups, **files):
        proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
        (proc / "self").mkdir(parents=True)
        (proc / "meminfo").write_text("MemTotal:  99999 kB\nMemAvailable:   8192 kB\n")
        (proc / "self" / "cgroup").write_text(groups)
        for name, text in files.items():
            path = cgroups.joinpath(*name.split("__"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(path.name.replace("_dot_", ".")).write_text(text)
        return free_memory_bytes(proc, cgroups)

    return built


def test_without_a_limit_it_is_what_the_system_has_available(system):
    assert system("0::/\n", memory_dot_max="max\n", memory_dot_current="5000000\n") == 8192 * 1024


def test_a_limit_of_the_group_counts_without_what_is_used(system):
    """6 MB less 4 MB, of which 1 MB are pages of files that can be given up."""
    files = {
        "a__memory_dot_max": "6000000\n",
        "a__memory_dot_current": "4000000\n",
        "a__memory_dot_stat": "anon 3000000\ninactive_file 1000000\n",
    }
    assert system("0::/a\n", **files) == 3_000_000


def test_limits_of_the_groups_around_it_count_too(system):
    files = {
        "a__memory_dot_max": "5000000",
        "a__memory_dot_current": "4000000",
        "a__b__memory_dot_max": "max",
        "a__b__memory_dot_current": "100",
    }
    assert system("0::/a/b\n", **files) == 1_000_000


def test_groups_of_the_first_version_are_read_too(system):
    files = {"memory__a__memory_dot_limit_in_bytes": "3000000", "memory__a__memory_dot_usage_in_bytes": "1000000"}
    assert system("4:memory:/a\n1:cpu:/a\n0::/\n", **files) == 2_000_000


def test_the_huge_number_of_the_first_version_is_no_limit(system):
    files = {"memory__memory_dot_limit_in_bytes": "9223372036854771712", "memory__memory_dot_usage_in_bytes": "1"}
    assert system("4:memory:/\n", **files) == 8192 * 1024


def test_where_nothing_is_told_nothing_is_known(tmp_path):
    assert free_memory_bytes(tmp_path, tmp_path) is None
