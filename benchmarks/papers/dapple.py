"""DAPPLE: its plans against PipeDream's, both run synchronously."""

from functools import partial

from benchmarks.papers.paper import Headline, Paper, own_objectives_table, range_of, times_table
from benchmarks.problems.registry import ONLY_1F1B
from benchmarks.problems.specs import Spec

SOLVERS = ("pipedream", "dapple", "milp")
SPECS = tuple(
    Spec(
        model=model,
        cluster=cluster,
        global_batch=batch,
        tensor_parallel=(1,),
        schedules=ONLY_1F1B,
        solvers=SOLVERS,
        time_limit_s=60,
    )
    for model, cluster, batch in (
        ("bert-large", "dgx-a100-16", 128),
        ("bert-large", "commodity-32", 128),
        ("vgg19", "dgx-a100-16", 512),
        ("vgg19", "commodity-32", 512),
        ("gpt2-xl", "commodity-32", 128),
    )
)

PAPER = Paper(
    key="dapple",
    source="Fan et al., DAPPLE, PPoPP 2021 (arXiv 2007.01045)",
    specs=SPECS,
    headlines=(
        Headline(
            claim="plans up to 3.23x faster than PipeDream's under synchronous training",
            read_in="abstract",
            ours=lambda found: f"`pipedream` over `dapple`: {range_of(found, 'pipedream', 'dapple')}",
        ),
    ),
    tables=(
        partial(times_table, solvers=SOLVERS, over="milp"),
        partial(own_objectives_table, solver="dapple"),
    ),
    comparable=(
        "Comparable: both planners are given the same costs, and their plans are run under the same synchronous 1F1B, "
        "as in the paper. Not comparable: models and GPUs are those of our catalogue, seconds are simulated, and plans "
        "of either paper that our search space cannot express are left out."
    ),
)
