"""HetPipe: partitions for virtual workers of unlike GPUs, on the paper's sixteen GPUs."""

from functools import partial

from benchmarks.papers.paper import Headline, Paper, own_objectives_table, range_of, times_table
from benchmarks.problems.registry import ONLY_1F1B
from benchmarks.problems.specs import Spec

SOLVERS = ("even", "hetpipe", "milp")
SPECS = tuple(
    Spec(
        model=model,
        cluster="hetpipe-16",
        global_batch=512,
        micro_batches=(32,),
        replicas=(1,),
        tensor_parallel=(1,),
        pipelines=pipelines,
        schedules=ONLY_1F1B,
        solvers=SOLVERS,
        time_limit_s=60,
    )
    for model in ("vgg19", "resnet152")
    for pipelines in ((4,), (1,))
)

PAPER = Paper(
    key="hetpipe",
    source="Park et al., HetPipe, USENIX ATC 2020",
    specs=SPECS,
    headlines=(
        Headline(
            claim="converges up to 49 % faster than data parallelism",
            read_in="abstract",
            ours=lambda found: (
                "not measured: no convergence, and data parallelism over unlike GPUs is outside our search space; "
                f"`even` over `hetpipe`: {range_of(found, 'even', 'hetpipe')}"
            ),
        ),
    ),
    tables=(
        partial(times_table, solvers=SOLVERS, over="milp"),
        partial(own_objectives_table, solver="hetpipe"),
    ),
    comparable=(
        "Comparable: models, GPUs, and the partition of one virtual worker. P 4 is the paper's allocation of one GPU "
        "of each kind to each of four virtual workers, P 1 one pipeline over all sixteen. Not comparable: the paper's "
        "virtual workers run asynchronously over a parameter server, here every iteration ends with an all-reduce; "
        "allocations whose virtual workers differ are no identical pipelines and not planned."
    ),
)
