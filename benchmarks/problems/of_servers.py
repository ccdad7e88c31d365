"""Random problems on usual servers: up to three classes of 1 to 32 servers with 4 or 8 devices of one type.

Nothing is odd, slow or tight here, and clusters may be larger than those of `benchmarks/problems/drawn.py`.
"""

import random
from collections.abc import Iterator
from itertools import islice

from benchmarks.problems.described_clusters import KINDS, described
from benchmarks.problems.drawn import MODELS, suits
from benchmarks.problems.specs import Spec

SEEDS, NUM_PER_SEED = (1, 2, 3, 4), 13
BATCHES = (64, 128, 256, 512, 1024, 2048)
DEVICES = (16, 512)
NUM_TYPES = (1, 2, 2, 3)
SERVERS = (1, 2, 4, 6, 8, 12, 16, 20, 32)
PER_SERVER = (4, 8, 8)


def _drawn(seed: int) -> Iterator[Spec]:
    """One problem after the other, without end."""
    draw = random.Random(seed)
    while True:
        model, batch = draw.choice(MODELS), draw.choice(BATCHES)
        kinds = draw.sample(list(KINDS), draw.choice(NUM_TYPES))
        name = ",".join(f"{draw.choice(SERVERS)}x{draw.choice(PER_SERVER)}:{kind}" for kind in kinds)
        cluster = described(name)
        if suits(model, cluster, batch) and DEVICES[0] <= cluster.num_devices <= DEVICES[1]:
            yield Spec(model=model, cluster=name, global_batch=batch, solvers=("milp",), time_limit_s=60)


_ALL = [spec for seed in SEEDS for spec in islice(_drawn(seed), NUM_PER_SEED)]
OF_SERVERS = {f"servers-{number:02d}": spec for number, spec in enumerate(_ALL, 1)}
"""Problems by their number, thirteen of each seed."""
