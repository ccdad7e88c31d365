"""Random problems that somebody might have: models of the catalogue on 16 to 256 devices of up to four types.

Everything is drawn by seed: types, numbers of servers and devices (odd ones too), servers of two types, slow
interfaces, tight memory, the model and a batch that gives every device something to do. What does not fit is drawn
again; where memory would do and yet no plan was found, the seed is left out.
"""

import math
import random
from collections.abc import Sequence

from benchmarks.problems.described_clusters import KINDS, described
from benchmarks.problems.specs import Spec
from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.units import GIB

SEEDS = tuple(seed for seed in range(1, 42) if seed != 17)
MODELS = (
    *("gpt2-345m", "gpt2-762m", "gpt2-1.3b", "gpt2-xl", "gpt3-175b", "bert-large", "vit-large"),
    *("llama3-8b", "llama3-70b", "mixtral-8x7b", "resnet50", "resnet152", "vgg19", "unet"),
)
BATCHES = (32, 64, 96, 120, 128, 192, 256, 360, 384, 512, 768, 1000, 1024, 1536, 2048)
SAMPLES_PER_DEVICE = (1.0, 16.0)
DEVICES = (16, 256)
NUM_TYPES, TYPE_WEIGHTS = (1, 2, 3, 4), (4, 8, 5, 3)
PER_SERVER = (1, 2, 3, 4, 4, 5, 6, 8, 8, 8)
SLOW_GBIT_PER_S = (5, 10, 25, 40)
SHARE_MIXED, SHARE_SLOW, SHARE_TIGHT = 0.1, 0.3, 0.5
"""Servers with devices of two types, with slow interfaces; problems with tight memory."""
STATE = 8
"""Bytes of training with AdamW (16 per parameter) over those of a parameter in fp16."""
LARGEST_STATE, TIGHT_STATE = 0.55, (0.2, 0.55)
"""What parameters, gradients and moments take of all memory: at most, and where memory is tight."""
LEAST_GIB = 2
"""Of a device whose memory is tight."""


def drawn(seed: int) -> Spec:
    """The problem of a seed."""
    draw = random.Random(seed)
    while (spec := _draw(draw)) is None:
        continue
    return spec


def _draw(draw: random.Random) -> Spec | None:
    """A problem; None if it does not fit."""
    model, batch, classes = draw.choice(MODELS), draw.choice(BATCHES), _classes(draw)
    cluster = described(",".join(classes))
    if draw.random() < SHARE_TIGHT:
        factor = _state_share(model, cluster) / draw.uniform(*TIGHT_STATE)
        if factor * min(kind.memory_bytes for kind in cluster.device_types) < LEAST_GIB * GIB:
            return None
        classes = _tightened(classes, factor)
        cluster = described(",".join(classes))
    if not suits(model, cluster, batch) or not DEVICES[0] <= cluster.num_devices <= DEVICES[1]:
        return None
    return Spec(model=model, cluster=",".join(classes), global_batch=batch, solvers=("milp",), time_limit_s=60)


def suits(model: str, cluster: Cluster, batch: int) -> bool:
    """Whether the state of training leaves room for activations, and the batch gives every device something to do."""
    least, most = SAMPLES_PER_DEVICE
    return _state_share(model, cluster) <= LARGEST_STATE and least <= batch / cluster.num_devices <= most


def _state_share(model: str, cluster: Cluster) -> float:
    """What parameters, gradients and moments take of all memory."""
    return STATE * sum(layer.params_bytes for layer in build_model(model).layers) / _memory_bytes(cluster)


def _classes(draw: random.Random) -> list[str]:
    """Server classes, each as `described_clusters` reads it."""
    (num_types,) = draw.choices(NUM_TYPES, TYPE_WEIGHTS)
    kinds = draw.sample(list(KINDS), num_types)
    total = math.exp(draw.uniform(*(math.log(size) for size in DEVICES)))
    weights = [draw.uniform(0.5, 2.0) for _ in kinds]
    found = []
    for index, weight in enumerate(weights):
        per_server = draw.choice(PER_SERVER)
        count = max(1, round(total * weight / sum(weights) / per_server))
        inside = _inside(draw, kinds, index, per_server)
        speed = f"@{draw.choice(SLOW_GBIT_PER_S)}" if draw.random() < SHARE_SLOW else ""
        found.append(f"{count}x{inside}{speed}")
    return found


def _inside(draw: random.Random, kinds: Sequence[str], index: int, per_server: int) -> str:
    """The islands of a server: one, or halves of two types."""
    if index + 1 < len(kinds) and per_server > 1 and draw.random() < SHARE_MIXED:
        half = per_server // 2
        return f"{per_server - half}:{kinds[index]}+{half}:{kinds[index + 1]}"
    return f"{per_server}:{kinds[index]}"


def _tightened(classes: Sequence[str], factor: float) -> list[str]:
    """The classes with that part of their memory, in whole GiB, if that is less."""
    if factor >= 1:
        return list(classes)
    for name, kind in KINDS.items():
        memory = round(factor * kind.memory_bytes / GIB)
        classes = [_with_memory(text, name, memory) for text in classes]
    return list(classes)


def _with_memory(text: str, name: str, memory: int) -> str:
    inside, at, speed = text.partition("@")
    islands = [f"{part}/{memory}" if part.endswith(f":{name}") else part for part in inside.split("+")]
    return "+".join(islands) + at + speed


def _memory_bytes(cluster: Cluster) -> float:
    return sum(
        server.count * island.count * cluster.device_type(island.device_type).memory_bytes
        for server in cluster.servers
        for island in server.islands
    )


DRAWN = {f"drawn-{seed:02d}": drawn(seed) for seed in SEEDS}
"""Problems by their number, which is the seed."""
