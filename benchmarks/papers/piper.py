"""Piper: time per sample of its plans, with data and tensor parallelism inside stages."""

from functools import partial

from benchmarks.papers.paper import Paper, own_objectives_table, times_table
from benchmarks.problems.registry import ONLY_1F1B
from benchmarks.problems.specs import Spec

SOLVERS = ("megatron-even", "piper", "milp")
SPECS = tuple(
    Spec(model=model, cluster=cluster, global_batch=batch, schedules=ONLY_1F1B, solvers=SOLVERS, time_limit_s=60)
    for model, cluster, batch in (
        ("bert-large", "h100-8", 128),
        ("bert-large", "commodity-32", 128),
        ("gpt2-xl", "dgx-a100-16", 128),
        ("gpt2-xl", "commodity-32", 128),
    )
)

PAPER = Paper(
    key="piper",
    source="Tarnawski et al., Piper, NeurIPS 2021",
    specs=SPECS,
    tables=(
        partial(times_table, solvers=SOLVERS, over="milp"),
        partial(own_objectives_table, solver="piper"),
    ),
    comparable=(
        "Comparable: `megatron-even` is near the paper's own baseline, equal stages with one degree of data and tensor "
        "parallelism. Its objective, the time per sample of the busiest stage, leaves out how a pipeline fills and "
        "drains. Not comparable: its plans choose recomputation for each layer, ours for each stage."
    ),
)
