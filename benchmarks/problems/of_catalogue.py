"""Random problems of the catalogue: a model, a cluster of it and a batch, drawn together by seed."""

import random
from collections.abc import Iterator
from itertools import islice

from benchmarks.problems.drawn import MODELS, suits
from benchmarks.problems.specs import Spec
from stagecut.models import build_cluster

SEEDS, NUM_PER_SEED = (1, 2), 26
CLUSTERS = (
    *("hetpipe-16", "commodity-32", "dgx-a100-16", "a100-v100-32", "a100-v100-512"),
    *("three-generations-64", "mixed-server-8"),
)
"""All but the two of alike devices in a single server."""
BATCHES = (64, 96, 128, 192, 256, 384, 512, 768, 1024)


def _drawn(seed: int) -> Iterator[Spec]:
    """One problem after the other, without end."""
    draw = random.Random(seed)
    while True:
        model, cluster, batch = draw.choice(MODELS), draw.choice(CLUSTERS), draw.choice(BATCHES)
        if suits(model, build_cluster(cluster), batch):
            yield Spec(model=model, cluster=cluster, global_batch=batch, solvers=("milp",), time_limit_s=60)


_ALL = {spec.name: spec for seed in SEEDS for spec in islice(_drawn(seed), NUM_PER_SEED)}
OF_CATALOGUE = {f"catalogue-{number:02d}": spec for number, spec in enumerate(_ALL.values(), 1)}
"""Problems by their number, those drawn twice once."""
