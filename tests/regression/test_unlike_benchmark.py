"""Groups, shares and the all-reduce of unlike pipelines made by hand; docs/decisions.md shows what was kept."""

import pytest

from benchmarks.harness.driver import Request
from benchmarks.report import pages, results
from benchmarks.unlike_pipelines import driver
from benchmarks.unlike_pipelines.cases import CASES, QUICK
from benchmarks.unlike_pipelines.constructed import Builder
from benchmarks.unlike_pipelines.groupings import groupings, sub_cluster
from benchmarks.unlike_pipelines.shares import near_shares

KEPT = results.read_kept(driver.DRIVER.name, driver.DRIVER.jobs)
SEVEN_AND_FIVE = CASES[2]
"""One host of 7 devices and one of 5."""


def test_every_part_was_kept_and_no_plan_is_below_the_fluid_bound():
    assert list(KEPT) == list(driver.DRIVER.jobs)
    for part in KEPT.values():
        assert part["fluid_bound_s"] <= part["alike"]["objective_s"]
        assert part["unlike"] is None or part["fluid_bound_s"] <= part["unlike"]["seconds"]


def test_the_page_shows_what_was_kept():
    """`python -m benchmarks.unlike_pipelines --docs --from-results` would change nothing in it."""
    ((page, tables),) = driver.tables(KEPT).items()
    assert pages.table_in(page.read_text(encoding="utf-8"), "unlike pipelines") == tables["unlike pipelines"]


def test_no_device_is_in_two_groups():
    for case in CASES:
        cluster = case.problem().cluster
        for grouping in groupings(cluster):
            for index, server in enumerate(cluster.servers):
                used = sum(devices for group in grouping for own, devices in group if own == index)
                assert used <= server.count * server.num_devices


def test_devices_are_dealt_out_where_there_are_more_groups_than_hosts():
    """7 and 5 devices in two groups: 4 + 3 and, the other way round, 2 + 3."""
    assert (((0, 3), (1, 3)), ((0, 4), (1, 2))) in groupings(SEVEN_AND_FIVE.problem().cluster)


def test_part_of_a_host_has_as_large_a_part_of_its_interface():
    """3 of 7 devices have 3 / 7 of 25 GB/s; a switch keeps its speed."""
    whole = SEVEN_AND_FIVE.problem().cluster
    (part,) = sub_cluster(whole, ((0, 3),)).servers
    assert part.num_devices == 3
    assert part.nic.bandwidth_bytes_per_s == pytest.approx(25e9 * 3 / 7)
    assert part.islands[0].fabric == whole.servers[0].islands[0].fabric


def test_shares_follow_rates_and_add_up():
    """Two groups at rate 1 and one at 6 of 8 samples: 1 + 1 + 6; 10 % more or less is too near to be a whole sample."""
    slow, fast = ((0, 1),), ((1, 1),)
    shares = near_shares((slow, slow, fast), {slow: 1.0, fast: 6.0}, 8)
    assert {slow: 1, fast: 6} in shares
    assert all(2 * each[slow] + each[fast] == 8 for each in shares)


def test_two_hosts_that_hold_everything_exchange_all_gradients():
    """Ring of two: 2 (2 - 1) steps of half the gradients over the slower interface, here the 100 Gb/s of the V100s,
    and the latencies of both ends."""
    problem = SEVEN_AND_FIVE.problem()
    grouping = (((0, 7),), ((1, 5),))
    built = Builder(problem).build(grouping, {grouping[0]: 96, grouping[1]: 32})
    params = sum(layer.params_bytes + layer.shared_params_bytes for layer in problem.model.layers) / 2
    assert built.sync_s == pytest.approx(2 * (params * 2 / 2 / 12.5e9 + 10e-6))
    assert built.seconds == max(plan.seconds for plan in built.plans.values()) + built.sync_s


def test_a_small_problem_is_measured():
    """Two devices of one kind and one of another: bound and plans in the right order, and a table."""
    (case,) = QUICK
    part = driver.measure(case, Request(time_scale=0.1))
    assert 0 < part["fluid_bound_s"] <= part["alike"]["objective_s"]
    ((_, tables),) = driver.tables({case.name: part}).items()
    assert "vgg16-cifar, 8" in tables["unlike pipelines"]
