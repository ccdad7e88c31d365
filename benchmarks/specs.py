"""The problems that benchmarks run on, frozen: name, inputs, choices, budget."""

from dataclasses import dataclass

from models import build_cluster, build_model
from planner.core.job import Job, standard_optimizer
from planner.core.precision import Precision
from planner.core.problem import Problem
from planner.core.schedule import Schedule

FREE = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
"""Schedules with devices of a stage's own, what files and the command line allow by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One problem of the catalogue: by default with every choice left to the planner."""

    model: str
    cluster: str
    global_batch: int
    micro_batches: tuple[int, ...] = (1, 2, 4, 8)
    replicas: tuple[int, ...] | None = None
    tensor_parallel: tuple[int, ...] | None = None
    pipelines: tuple[int, ...] | None = None
    schedules: tuple[Schedule, ...] = FREE
    time_limit_s: float = 120.0
    wanted_gap: float = 0.01
    """The gap that has to be proven within the time limit."""

    @property
    def name(self) -> str:
        """Inputs and what is not free, short."""
        return ", ".join([self.model, self.cluster, f"batch {self.global_batch}", *self.restrictions])

    @property
    def restrictions(self) -> tuple[str, ...]:
        """Choices that the planner does not have."""
        told = [] if self.micro_batches == (1, 2, 4, 8) else [f"b {_list(self.micro_batches)}"]
        for letter, allowed in (("r", self.replicas), ("tp", self.tensor_parallel), ("P", self.pipelines)):
            if allowed is not None:
                told.append(f"{letter} {_list(allowed)}")
        if self.schedules != FREE:
            told.append(f"{_list(self.schedules)} only")
        return tuple(told)

    def problem(self) -> Problem:
        """The problem itself, in fp16 with AdamW."""
        precision = Precision.FP16
        return Problem(
            model=build_model(self.model, precision=precision),
            cluster=build_cluster(self.cluster),
            job=Job(
                global_batch=self.global_batch,
                optimizer=standard_optimizer("adamw", precision),
                precision=precision,
                micro_batches=self.micro_batches,
                replicas=self.replicas,
                tensor_parallel=self.tensor_parallel,
                pipelines=self.pipelines,
                schedules=self.schedules,
            ),
        )


def _list(values: tuple[object, ...]) -> str:
    return ",".join(map(str, values))


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
"""For the plans and bounds of all solvers."""

STEPS = (GPT2_XL, BERT_LARGE, LLAMA3_70B)
"""For what the steps of `milp` take."""

PLAIN = {"micro_batches": (1,), "replicas": (1,), "tensor_parallel": (1,), "pipelines": (1,)}
"""One device for each stage, one pipeline."""
ONLY_1F1B = (Schedule.ONE_F_ONE_B,)

TEXTBOOK = (
    Spec(model="vgg16", cluster="cpu-2", global_batch=8, micro_batches=(1, 2), time_limit_s=15),
    Spec(model="synthetic:7:6", cluster="mixed-server-8", global_batch=8, micro_batches=(1, 2), time_limit_s=15),
    Spec(model="synthetic:3:8", cluster="mixed-server-8", global_batch=16, time_limit_s=15, **PLAIN),
    Spec(model="synthetic:5:10", cluster="hetpipe-16", global_batch=16, time_limit_s=15, **PLAIN),
    Spec(model="bert-large", cluster="h100-8", global_batch=64, schedules=ONLY_1F1B, time_limit_s=15, **PLAIN),
)
"""Small enough for the textbook formulation."""

TEXTBOOK_RACE = (
    Spec(model="bert-large", cluster="h100-8", global_batch=64, schedules=ONLY_1F1B, time_limit_s=60, **PLAIN),
)
"""Eight devices: `milp` against the textbook formulation, to the same proven gap."""

DP = (
    Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=64, time_limit_s=30, **PLAIN),
    Spec(model="resnet152", cluster="mixed-server-8", global_batch=64, time_limit_s=30, **PLAIN),
    Spec(model="gpt2-345m", cluster="dgx-a100-16", global_batch=128, time_limit_s=30),
    Spec(model="vit-large", cluster="h100-8", global_batch=256, time_limit_s=30),
)
"""`dp` against `milp`."""

SMOKE = (Spec(model="vgg16", cluster="cpu-2", global_batch=8, micro_batches=(1, 2), time_limit_s=20),)
"""Small enough for the test suite."""
