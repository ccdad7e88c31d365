"""The benchmark of certificates: its random problems, and what it says of the answers."""

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks import certificates
from benchmarks.harness.driver import Request
from benchmarks.harness.measuring import Answer, measured_here
from benchmarks.problems.described_clusters import described, is_described
from benchmarks.problems.drawn import DEVICES, DRAWN, drawn
from benchmarks.problems.of_catalogue import OF_CATALOGUE
from benchmarks.problems.of_servers import OF_SERVERS
from benchmarks.problems.registry import HARD
from stagecut.models import cluster_names
from stagecut.planner.core.messages.errors import BadInputError

ANSWER = Answer(
    status="optimal",
    objective_s=2.0,
    bound_s=1.98,
    gap=0.01,
    search_s=20.0,
    peak_bytes=2.0**30,
    first_plan_s=0.5,
    first_bound_s=2.0,
    gap_after_s={"3": 0.5, "10": 0.1, "60": 0.01},
)
LATE = replace(ANSWER, first_bound_s=3.5, gap=0.4, bound_s=1.2)
NAME = next(f"{number}: {spec.name}" for number, spec in DRAWN.items())
OTHER = [f"{number}: {spec.name}" for number, spec in DRAWN.items()][1]


def test_random_problems_are_what_was_promised():
    """40 of them, on 16 to 256 devices of one to four types, some odd in number, some slow, some with tight memory."""
    assert len({spec.name for spec in DRAWN.values()}) == len(DRAWN) == 40
    clusters = {spec.cluster: described(spec.cluster) for spec in DRAWN.values()}
    sizes = [cluster.num_devices for cluster in clusters.values()]
    assert all(DEVICES[0] <= size <= DEVICES[1] for size in sizes)
    assert any(size % 2 for size in sizes)
    kinds = Counter(len(cluster.device_types) for cluster in clusters.values())
    assert set(kinds) == {1, 2, 3, 4}
    assert any("@" in name for name in clusters)
    assert any("/" in name for name in clusters)


def test_random_problems_are_drawn_by_seed():
    """Today's are those whose results are kept."""
    for number, spec in DRAWN.items():
        assert drawn(int(number.removeprefix("drawn-"))) == spec
    assert DRAWN["drawn-31"].name == "gpt2-345m, 12x2:v100-16, batch 360"


def test_random_problems_of_the_catalogue_are_drawn_by_seed():
    """Today's are those whose results are kept, each once."""
    assert len({spec.name for spec in OF_CATALOGUE.values()}) == len(OF_CATALOGUE) == 49
    assert OF_CATALOGUE["catalogue-49"].name == "llama3-70b, three-generations-64, batch 64"


def test_random_problems_of_usual_servers_are_drawn_by_seed():
    """Today's are those whose results are kept, each once."""
    assert len({spec.name for spec in OF_SERVERS.values()}) == len(OF_SERVERS) == 52
    assert OF_SERVERS["servers-52"].name == "resnet50, 6x8:t4, batch 128"


RANDOM = (*DRAWN.values(), *OF_CATALOGUE.values(), *OF_SERVERS.values())


@pytest.mark.parametrize("spec", [*HARD, *RANDOM], ids=lambda spec: spec.name)
def test_every_problem_has_variants(spec):
    """Its batch can be divided over its devices."""
    assert spec.problem().variants


def test_a_described_cluster_has_what_the_line_says():
    """Four servers of 8 T4 of 8 GiB at 10 Gb/s, and two of 2 T4 and 3 V100 that share the slower usual interface."""
    cluster = described("4x8:t4/8@10,2x2:t4+3:v100-16")
    first, second = cluster.servers
    assert cluster.num_devices == 42
    assert (first.count, first.nic.bandwidth_bytes_per_s) == (4, 1.25e9)
    assert cluster.device_type("t4/8").memory_bytes == 8 * 2**30
    assert [island.count for island in second.islands] == [2, 3]
    assert [island.shared for island in second.islands] == [True, False]
    assert second.nic.bandwidth_bytes_per_s == 3.125e9


def test_names_of_other_clusters_describe_none():
    """Neither those of the catalogue nor pods."""
    assert not any(is_described(name) for name in (*cluster_names(), "pods:2:16"))


@pytest.mark.parametrize("name", ["4x8", "4x8:none", "4x8:t4+", "4x8:t4,"])
def test_descriptions_that_say_nothing_are_refused(name):
    """No type, an unknown one, no island, no class."""
    with pytest.raises(BadInputError):
        described(name)


def test_certificates_of_a_small_problem():
    """It is proven to 1 %, and its first plan is there before its first bound."""
    (job,) = certificates.DRIVER.quick_jobs.values()
    answer = Answer(**job(Request(by=measured_here, quick=True))["milp"])
    assert answer.gap <= 0.01
    assert 0 < answer.first_plan_s <= answer.search_s
    assert 0 < answer.first_bound_s <= answer.search_s
    assert answer.gap_after_s["60"] == answer.gap


def test_tables_and_summaries_of_random_problems():
    """One of two on random clusters has its bound in time and is closed; the other is named with its gap."""
    numbered = (f"{number}: {(OF_CATALOGUE | OF_SERVERS)[number].name}" for number in ("catalogue-01", "servers-01"))
    parts = {name: {"milp": ANSWER.tree()} for name in (NAME, HARD[0].name, *numbered)}
    parts[OTHER] = {"milp": LATE.tree()}
    (tables,) = certificates.tables(parts).values()
    row = "0.5 s | 2.0 s | 50.00 % | 10.00 % | 1.00 % | 1.00 % | 20 s | 1.00 GiB |"
    assert tables["certificates"].splitlines()[2:] == [f"| {HARD[0].name} | {row}"]
    assert tables["drawn certificates"].splitlines()[2] == f"| {NAME} | {row}"
    assert tables["certificates of drawn problems"].splitlines()[2:] == [
        "| a bound within 3 s | 1 of 2 |",
        "| 1 % within 60 s | 1 of 2 |",
        f"| open | {OTHER} (40.00 %) |",
    ]
    for name in ("certificates of the catalogue", "certificates of usual servers"):
        assert tables[name].splitlines()[2:] == [
            "| a bound within 3 s | 1 of 1 |",
            "| 1 % within 60 s | 1 of 1 |",
            "| open | none |",
        ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"objective_s": None, "status": "no-plan-in-budget"}, "no plan: no-plan-in-budget"),
        ({"bound_s": 2.1}, "the bound is above the time of the plan"),
    ],
)
def test_answers_that_cannot_be_are_complained_of(changes, fault):
    """No plan where there is one, and a bound of 2.1 s for a plan of 2 s."""
    parts = {NAME: {"milp": replace(ANSWER, **changes).tree()}}
    assert certificates.complaint(parts) == (f"{NAME}: {fault}" if fault else "")
