"""The benchmark of the executor's own time runs, and its parts add up."""

import pytest

pytest.importorskip("torch")

from benchmarks import runtime_overhead
from benchmarks.report import pages
from benchmarks.runtime_overhead import PARTS, RankStep, RankSteps, WorldResult, others_share


def test_a_small_world_is_measured():
    """Two ranks, four micro-batches: eight actions each, every part of which took some time but those of no message."""
    world = runtime_overhead.measure(2, num_microbatches=4, warmup=1, steps=2)
    assert (world.num_ranks, world.num_actions) == (2, 8)
    assert world.overhead_s > 0
    assert world.step_s > 0
    assert all(world.parts_s[part] > 0 for part in ("layers", "wait", "post", "send", "player"))


def test_overhead_is_all_but_the_layers():
    """Ten actions in 8 ms, 3 of them in layers: 0.5 ms each."""
    step = RankStep(seconds=8e-3, num_actions=10, parts={"layers": 3e-3})
    assert step.overhead_s == pytest.approx(0.5e-3)


def test_processor_time_of_others_is_what_the_ranks_have_not_used(monkeypatch):
    """Two processors give 20 s in 10 s; of the 12 s used, the ranks have 5 s each, so others have a tenth of all."""
    monkeypatch.setattr(runtime_overhead.os, "cpu_count", lambda: 2)
    ranks = [RankSteps(steps=(), seconds=10.0, own_s=5.0, machine_s=12.0)] * 2
    assert others_share(ranks) == pytest.approx(0.1)


def test_the_table_is_in_microseconds():
    parts_s = {part: 1e-6 * (place + 1) for place, part in enumerate(PARTS)}
    world = WorldResult(
        num_ranks=2, num_actions=128, step_s=150e-6, overhead_s=100e-6, parts_s=parts_s, others_share=0.5
    )
    table = runtime_overhead.table([world])
    assert table.splitlines()[-1] == "| 2 (contaminated) | 128 | 100 | 2 | 3 | 4 | 5 | 6 | 1 | 150 |"
    page = "<!-- runtime overhead: begin -->\n<!-- runtime overhead: end -->\n"
    assert table in pages.with_table(page, "runtime overhead", table)


def test_the_page_has_a_place_for_the_table():
    assert pages.with_table(pages.EXECUTOR_PAGE.read_text(), "runtime overhead", "new")
