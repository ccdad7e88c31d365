"""The problems that benchmarks run on, frozen: name, inputs, solvers, budget."""

from dataclasses import dataclass

from models import build_cluster, build_model
from planner.core.job import Job, standard_optimizer
from planner.core.precision import Precision
from planner.core.problem import Problem
from planner.core.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One problem of the catalogue with the choices left to the planner."""

    model: str
    cluster: str
    global_batch: int
    micro_batches: tuple[int, ...] = (1,)
    replicas: tuple[int, ...] | None = None
    schedules: tuple[Schedule, ...] = tuple(Schedule)

    @property
    def name(self) -> str:
        """Inputs and choices, short."""
        sizes = ",".join(map(str, self.micro_batches))
        replicas = "any" if self.replicas is None else ",".join(map(str, self.replicas))
        schedules = "" if len(self.schedules) > 1 else f", {self.schedules[0]} only"
        return f"{self.model}, {self.cluster}, batch {self.global_batch}, b {sizes}, r {replicas}{schedules}"

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
                schedules=self.schedules,
            ),
        )


QUALITY = (
    Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=64, replicas=(1,)),
    Spec(model="gpt2-xl", cluster="hetpipe-16", global_batch=64, replicas=(1,), schedules=(Schedule.ONE_F_ONE_B,)),
    Spec(model="bert-large", cluster="commodity-32", global_batch=128, replicas=(1,)),
    Spec(model="bert-large", cluster="commodity-32", global_batch=128, micro_batches=(1, 2, 4), replicas=(1, 2, 3, 4)),
    Spec(model="resnet152", cluster="mixed-server-8", global_batch=64, micro_batches=(2, 4)),
)
SMOKE = (Spec(model="vgg16", cluster="cpu-2", global_batch=8),)
"""Small enough for the test suite."""
