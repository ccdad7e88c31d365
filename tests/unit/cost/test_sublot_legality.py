"""Every rule for sublot sizes, broken once; the plan is the best one of `two_kinds`, pairs in every process."""

from dataclasses import replace

import pytest

from stagecut.planner.core.plan import Pipeline
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.unequal_problems import two_kinds

PROBLEM = two_kinds()


def found(problem=PROBLEM, **changes):
    """Faults of the plan with other sizes on its first stage."""
    pairs = run(PROBLEM, "milp", SolveOptions(gap=0.0)).plan
    best = replace(pairs, micro_batch=4, num_microbatches=1)
    first, *others = best.stages
    changed = replace(first, **changes)
    return faults(CostModel(problem), replace(best, pipelines=(Pipeline(stages=(changed, *others)),)))


def test_the_best_plan_has_no_faults():
    assert found() == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"forward_micro_batch": 4, "backward_micro_batch": 2, "warmup_depth": 1},
            "stage 0: backwards of 2 samples cut through forwards of 4; every backward must be a union of forwards",
        ),
        (
            {"forward_micro_batch": 3, "backward_micro_batch": 3},
            "stage 0: forwards of 3 samples, where the job allows 1, 2, 4",
        ),
        ({"forward_message": 3}, "stage 0: messages of activations of 3 samples, where the job allows 1, 2, 4"),
        ({"warmup_depth": 3}, "stage 0: warm-up depth 3, where gpipe has 2"),
    ],
)
def test_sizes_outside_the_space_are_named_with_their_process(changes, fault):
    assert fault in found(**changes)


def test_a_job_without_unequal_sizes_allows_none():
    assert "unequal micro-batches are not allowed by the job" in found(two_kinds(unequal=False))


def test_a_sublot_above_memory_is_told_with_its_stage():
    """Pairs save 4 bytes and work on 2."""
    (first, second) = found(two_kinds(memory_bytes=5.0))
    assert first == "stage 0: needs 6 B of memory and has 5 B"
    assert second.startswith("stage 1: needs")
