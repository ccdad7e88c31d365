"""A benchmark problem, frozen: inputs, choices, solvers, budget."""

from dataclasses import dataclass

from benchmarks.problems.described_clusters import described, is_described
from benchmarks.problems.generated_clusters import is_generated, pods
from benchmarks.problems.whole_blocks import of_whole_blocks
from stagecut.models import build_cluster, build_model
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import Job, SliceChoice, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule

FREE = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
"""Schedules in which every stage has its own devices: the default of files and command line."""
ALL = (*FREE, Schedule.INTERLEAVED)
OURS = ("milp", "dp", "greedy")
PUBLISHED = (
    *("autopipe", "autopipe-h", "pipedream", "dapple", "piper", "alpa", "hetpipe"),
    *("megatron-even", "deepspeed-parameters", "metis-like"),
)
"""Planners of papers, and the rules of published systems."""
OTHERS = ("even", "annealing")
COMPARED = (*OURS, *PUBLISHED, *OTHERS)
"""Solvers for problems of any size."""
WHOLE_BLOCKS = "whole blocks"
"""Abbreviations in the names of specs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One problem with its solvers; by default, every choice is left to the planner."""

    model: str
    cluster: str
    """A cluster of the catalogue, or generated: `pods:TYPES:DEVICES`, or described: `16x8:h100-80,16x8:a100-40`."""
    global_batch: int
    sequence_length: int | None = None
    """None: the model's default."""
    micro_batches: tuple[int, ...] = (1, 2, 4, 8)
    replicas: tuple[int, ...] | None = None
    tensor_parallel: tuple[int, ...] | None = None
    pipelines: tuple[int, ...] | None = None
    schedules: tuple[Schedule, ...] = FREE
    chunks: tuple[int, ...] = (2,)
    """Stages of a device group under interleaved 1F1B."""
    slice: SliceChoice = 0
    """How many warm-up micro-batches are halved."""
    whole_blocks: bool = False
    """Whether layers are whole transformer blocks rather than their parts."""
    solvers: tuple[str, ...] = COMPARED
    time_limit_s: float = 120.0
    """Time limit of `milp`, including the start of its process."""
    others_time_limit_s: float = 60.0
    """Time limit of every other solver."""
    wanted_gap: float = 0.01
    """The gap to prove within the time limit."""

    @property
    def name(self) -> str:
        """The inputs and the fixed choices, in short."""
        return ", ".join([self.model, self.cluster, f"batch {self.global_batch}", *self.restrictions])

    @property
    def restrictions(self) -> tuple[str, ...]:
        """The choices that are fixed."""
        told = [] if self.sequence_length is None else [f"sequence {self.sequence_length}"]
        if self.micro_batches != (1, 2, 4, 8):
            told.append(f"b {_list(self.micro_batches)}")
        for letter, allowed in (("r", self.replicas), ("tp", self.tensor_parallel), ("P", self.pipelines)):
            if allowed is not None:
                told.append(f"{letter} {_list(allowed)}")
        if self.schedules != FREE:
            told.append("all schedules" if self.schedules == ALL else f"{_list(self.schedules)} only")
        if self.chunks != (2,):
            told.append(f"chunks {_list(self.chunks)}")
        if self.slice != 0:
            told.append(f"slice {self.slice}")
        if self.whole_blocks:
            told.append(WHOLE_BLOCKS)
        return tuple(told)

    def problem(self) -> Problem:
        """The problem, in fp16 with AdamW."""
        precision = Precision.FP16
        problem = Problem(
            model=build_model(self.model, precision=precision, sequence_length=self.sequence_length),
            cluster=_cluster(self.cluster),
            job=Job(
                global_batch=self.global_batch,
                optimizer=standard_optimizer("adamw", precision),
                precision=precision,
                micro_batches=self.micro_batches,
                replicas=self.replicas,
                tensor_parallel=self.tensor_parallel,
                pipelines=self.pipelines,
                schedules=self.schedules,
                chunks=self.chunks,
                slice=self.slice,
            ),
        )
        return of_whole_blocks(problem) if self.whole_blocks else problem


def _cluster(name: str) -> Cluster:
    if is_generated(name):
        return pods(name)
    return described(name) if is_described(name) else build_cluster(name)


def _list(values: tuple[object, ...]) -> str:
    return ",".join(map(str, values))
