"""All benchmark problems, in the sets in which they are run."""

from dataclasses import replace

from benchmarks.problems.specs import ALL, Spec
from stagecut.planner.core.schedule import Schedule

ONLY_1F1B = (Schedule.ONE_F_ONE_B,)
PLAIN = {"micro_batches": (1,), "replicas": (1,), "tensor_parallel": (1,), "pipelines": (1,)}
"""One device per stage, one pipeline."""

GPT2_XL = Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=64, time_limit_s=60, wanted_gap=0.001)
BERT_LARGE = Spec(model="bert-large", cluster="commodity-32", global_batch=512, time_limit_s=60, wanted_gap=0.005)
LLAMA3_70B = Spec(model="llama3-70b", cluster="three-generations-64", global_batch=512)

QUALITY = (
    GPT2_XL,
    Spec(model="llama3-8b", cluster="a100-v100-32", global_batch=256, time_limit_s=60, wanted_gap=0.005),
    BERT_LARGE,
    LLAMA3_70B,
    Spec(model="gpt3-175b", cluster="a100-v100-512", global_batch=1536, time_limit_s=300, wanted_gap=0.03),
    Spec(model="gpt2-345m", cluster="dgx-a100-16", global_batch=128),
    Spec(model="mixtral-8x7b", cluster="three-generations-64", global_batch=256),
    Spec(model="bert-large", cluster="three-generations-64", global_batch=512),
    Spec(model="vit-large", cluster="h100-8", global_batch=256),
    Spec(model="llama3-8b", cluster="commodity-32", global_batch=64),
    Spec(model="resnet152", cluster="mixed-server-8", global_batch=64),
)
"""For plans and bounds of all solvers."""

STEPS = tuple(replace(spec, solvers=("milp",), time_limit_s=400.0) for spec in (GPT2_XL, BERT_LARGE, LLAMA3_70B))
"""For the time of each step of `milp`."""

WAYS = tuple(
    replace(spec, solvers=("milp",), time_limit_s=20.0)
    for spec in (
        GPT2_XL,
        BERT_LARGE,
        LLAMA3_70B,
        Spec(model="gpt2-1.3b", cluster="commodity-32", global_batch=128),
        Spec(model="resnet152", cluster="three-generations-64", global_batch=256),
        Spec(model="bert-large", cluster="h100-8", global_batch=64),
        Spec(model="vit-large", cluster="h100-8", global_batch=256),
        Spec(model="resnet152", cluster="mixed-server-8", global_batch=64),
    )
)
"""For what labels and MIPs close."""

FAMILIES = tuple(
    replace(spec, solvers=("milp",), time_limit_s=20.0)
    for spec in (
        Spec(model="bert-large", cluster="commodity-32", global_batch=128),
        Spec(model="resnet152", cluster="three-generations-64", global_batch=256),
        Spec(model="bert-large", cluster="6x4:v100-16@25,8x4:titan-rtx", global_batch=360),
        Spec(model="resnet152", cluster="4x3:rtx-3090@5,1x8:titan-rtx,6x2:v100-16@10", global_batch=256),
        Spec(model="resnet50", cluster="12x8:titan-v", global_batch=512),
        Spec(model="gpt2-1.3b", cluster="12x4:a100-40-pcie,4x8:t4,9x4:h100-80@40", global_batch=192),
    )
)
"""For what families of rows close: slow interfaces, shared fabrics."""

SPEED = tuple(
    replace(spec, solvers=tuple(name for name in spec.solvers if name != "milp"))
    for spec in (GPT2_XL, BERT_LARGE, LLAMA3_70B)
)
"""For search times of all solvers beside `milp`: the problems of `STEPS`."""

TEXTBOOK = tuple(
    replace(spec, solvers=("milp", "dp", "textbook-milp", "textbook-milp-cbc"), time_limit_s=15.0)
    for spec in (
        Spec(model="vgg16", cluster="cpu-2", global_batch=8, micro_batches=(1, 2)),
        Spec(model="synthetic:7:6", cluster="mixed-server-8", global_batch=8, micro_batches=(1, 2)),
        Spec(model="synthetic:3:8", cluster="mixed-server-8", global_batch=16, **PLAIN),
        Spec(model="synthetic:5:10", cluster="hetpipe-16", global_batch=16, **PLAIN),
        Spec(model="bert-large", cluster="h100-8", global_batch=64, schedules=ONLY_1F1B, **PLAIN),
    )
)
"""Small enough for the textbook formulation."""

TEXTBOOK_RACE = (
    Spec(
        model="bert-large",
        cluster="h100-8",
        global_batch=64,
        schedules=ONLY_1F1B,
        solvers=("textbook-milp", "textbook-milp-cbc"),
        time_limit_s=60,
        **PLAIN,
    ),
)
"""Eight devices: `milp` against the textbook formulation, to the same proven gap."""

DP = tuple(
    replace(spec, solvers=("dp", "milp"), time_limit_s=30.0)
    for spec in (
        Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=64, **PLAIN),
        Spec(model="resnet152", cluster="mixed-server-8", global_batch=64, **PLAIN),
        Spec(model="gpt2-345m", cluster="dgx-a100-16", global_batch=128),
        Spec(model="vit-large", cluster="h100-8", global_batch=256),
    )
)
"""`dp` against `milp`."""

BALANCE_MODELS = ("gpt2-345m", "gpt2-762m", "gpt2-1.3b", "gpt2-xl", "bert-large")
BALANCE_STAGES = (4, 8, 16)
BALANCE_BATCH = 128


def _balance(model: str, num_stages: int) -> Spec:
    """A pipeline on this many like devices, four to a server; M = 2p micro-batches, as in AutoPipe's planner."""
    return Spec(
        model=model,
        cluster=f"pods:1:{num_stages}",
        global_batch=BALANCE_BATCH,
        sequence_length=256,
        micro_batches=(BALANCE_BATCH // (2 * num_stages),),
        replicas=(1,),
        tensor_parallel=(1,),
        pipelines=(1,),
        schedules=ONLY_1F1B,
        solvers=("even", "dapple", "piper", "autopipe", "autopipe-h", "milp"),
        time_limit_s=60,
    )


BALANCE = tuple(_balance(model, stages) for model in BALANCE_MODELS for stages in BALANCE_STAGES)
"""How evenly planners cut a model; AutoPipe's models, sequence length, batch and micro-batch sizes."""
BALANCE_OF_BLOCKS = tuple(replace(spec, whole_blocks=True, solvers=("even", "dapple", "piper")) for spec in BALANCE)
"""The same for planners that cut only between blocks."""

SCALING_LAYERS = (24, 48, 96, 192, 384)
SCALING_DEVICES = (4, 16, 64, 256, 1024)
SCALING_TYPES = (1, 2, 3, 4, 5, 6)


def scaled(*, layers: int = 48, devices: int = 16, types: int = 2) -> Spec:
    """A random chain on a generated cluster; any number of replicas, one pipeline."""
    return Spec(
        model=f"synthetic:1:{layers}",
        cluster=f"pods:{types}:{devices}",
        global_batch=512,
        micro_batches=(16,),
        pipelines=(1,),
        schedules=ONLY_1F1B,
        solvers=("milp", "greedy"),
        time_limit_s=60,
    )


SCALING = {
    "layers": {size: scaled(layers=size) for size in SCALING_LAYERS},
    "devices": {size: scaled(devices=size) for size in SCALING_DEVICES},
    "types": {size: scaled(devices=24, types=size) for size in SCALING_TYPES},
}
"""One dimension at a time: what grows, and its sizes."""

LIMITS = (
    Spec(model="gpt3-175b", cluster="pods:1:4096", global_batch=4096, solvers=("milp", "dp", "annealing")),
    Spec(model="gpt3-175b", cluster="a100-v100-512", global_batch=1536, solvers=("milp",)),
    Spec(model="synthetic:1:1000", cluster="pods:2:128", global_batch=256, solvers=("milp", "hetpipe")),
)
"""Too large for any search to finish in seconds, and in no set: tests find a plan for each of them."""

HARD = tuple(
    replace(spec, solvers=("milp",))
    for spec in (
        Spec(model="bert-large", cluster="commodity-32", global_batch=128, time_limit_s=60),
        Spec(model="gpt2-1.3b", cluster="commodity-32", global_batch=128, time_limit_s=60),
        Spec(
            model="resnet152",
            cluster="three-generations-64",
            global_batch=256,
            time_limit_s=60,
            wanted_gap=0.01,
        ),
        Spec(model="llama3-8b", cluster="three-generations-64", global_batch=512, time_limit_s=60),
        Spec(model="gpt3-175b", cluster="16x8:h100-80,16x8:a100-40", global_batch=1024, time_limit_s=60),
        Spec(model="llama3-70b", cluster="4x8:h100-80,6x8:a100-40,6x8:v100-16", global_batch=512, time_limit_s=60),
        Spec(
            model="gpt2-345m",
            cluster="20x4:a100-40,60x4:v100-16",
            global_batch=1024,
            replicas=(1,),
            time_limit_s=60,
        ),
        scaled(devices=256),
        Spec(model="llama3-70b", cluster="three-generations-64", global_batch=512, time_limit_s=60),
        Spec(model="gpt3-175b", cluster="a100-v100-512", global_batch=1536, time_limit_s=60),
        Spec(
            model="gpt3-175b",
            cluster="128x8:h100-80,192x8:a100-40,192x8:v100-16",
            global_batch=4096,
            time_limit_s=600,
            wanted_gap=0.05,
        ),
    )
)
"""Hard to prove: many devices of unlike types, contended links, many variants; and two of `QUALITY` with less time."""

LONG = tuple(
    Spec(model=model, cluster=cluster, global_batch=batch, solvers=("milp",), time_limit_s=200.0)
    for model, cluster, batch in (
        ("gpt3-175b", "a100-v100-512", 1536),
        ("resnet152", "three-generations-64", 256),
        ("resnet152", "1x8:v100-16,5x4:titan-rtx", 64),
        ("vgg19", "50x3:v100-16,34x3:titan-v@10", 1024),
        ("gpt2-1.3b", "6x4:h100-80+4:titan-rtx,9x5:titan-rtx@25", 192),
    )
)
"""For what a second job brings."""

ONLY_INTERLEAVED = (Schedule.INTERLEAVED,)
ON_REQUEST = tuple(
    replace(spec, solvers=("milp",), time_limit_s=60)
    for spec in (
        *(
            Spec(model=model, cluster=cluster, global_batch=batch, schedules=ONLY_INTERLEAVED)
            for model, cluster, batch in (
                ("bert-large", "h100-8", 64),
                ("gpt2-345m", "dgx-a100-16", 128),
                ("resnet152", "mixed-server-8", 64),
                ("gpt2-xl", "hetpipe-16", 64),
                ("bert-large", "commodity-32", 128),
                ("gpt2-1.3b", "commodity-32", 128),
            )
        ),
        Spec(model="bert-large", cluster="commodity-32", global_batch=128, schedules=ALL),
        Spec(model="resnet152", cluster="three-generations-64", global_batch=256, schedules=ALL),
        Spec(model="vit-large", cluster="h100-8", global_batch=256, schedules=ALL, chunks=(2, 3)),
        Spec(model="gpt3-175b", cluster="a100-v100-512", global_batch=1536, schedules=ALL),
        Spec(model="gpt2-345m", cluster="dgx-a100-16", global_batch=128, slice=2),
        Spec(model="bert-large", cluster="commodity-32", global_batch=128, slice=3),
        Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=64, slice="auto"),
    )
)
"""With choices that a job has to ask for: interleaved 1F1B, halved micro-batches."""

SMOKE = (Spec(model="vgg16", cluster="cpu-2", global_batch=8, micro_batches=(1, 2), time_limit_s=20),)
"""Small enough for the test suite."""

SETS = {
    "quality": QUALITY,
    "steps": STEPS,
    "ways": WAYS,
    "families": FAMILIES,
    "speed": SPEED,
    "textbook": TEXTBOOK,
    "race": TEXTBOOK_RACE,
    "dp": DP,
    "balance": BALANCE,
    "balance of blocks": BALANCE_OF_BLOCKS,
    **{f"scaling {what}": tuple(specs.values()) for what, specs in SCALING.items()},
    "smoke": SMOKE,
}
