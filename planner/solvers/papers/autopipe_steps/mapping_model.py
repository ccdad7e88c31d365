"""Sets, parameters and variables of the program that maps stages to servers, for one variant.

The pipeline comes as *runs* of consecutive stages, each for one host (or one stage for several
whole hosts). The layers of every stage are given; which host, and with how many replicas, is not.

Sets
    k in 1 .. K             runs; s in k the stages of a run, S in all
    g                       server classes, with N_g hosts for the pipeline
    o in O_k                options of a run: a class, and replicas and degree for each of its stages,
                            as many per island as the run has; e(o) its end: class and number of hosts

Parameters (s), from the cost model, with recomputation where the stage would not fit otherwise
    F[s,o], B[s,o], G[s,o]  forward, backward; all-reduce and optimizer step
    c[s,o]                  transfer over the boundary after s inside a run
    c[s,e,e']               transfer between two runs
    A[s,o]                  all-reduces of the stages up to s on the link that all-reduces of s take; 0 if none
    z[e,e']                 sum of gradients of tied weights between two runs
    M, d[s]                 micro-batches, warm-up depths

Variables
    x[k,o] binary           run k is placed as o
    y[k,e,e'] >= 0          run k ends at e, run k + 1 begins at e'
    w[e,e'] >= 0            the runs with tied weights are at e and e'
    F_s, B_s, G_s, C_s >= 0 what a stage takes where it is placed, and the transfer after it
    PF_s, PB_s, total >= 0  a micro-batch alone: to the stage, from it back to the first stage, there and back
    T >= 0                  the iteration time's lower bound

The rows: :mod:`planner.solvers.papers.autopipe_steps.mapping_program`.
"""

from collections.abc import Sequence

import numpy as np
import pulp

from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.papers.autopipe_steps.mapping_links import TiedWeights, tied_weights
from stagecut.planner.solvers.papers.autopipe_steps.mapping_options import End, Span, run_options
from stagecut.planner.solvers.papers.autopipe_steps.mapping_shapes import Mapping


class MappingModel:
    """`program` is the PuLP problem, to minimise T; it has no rows yet.

    Parameters
    ----------
    costs
        Of the variant's share.
    mapping
        Gives the number of stages of every run, and of every island inside it.
    stops
        First layer after each stage.
    """

    def __init__(self, costs: CostModel, variant: Variant, mapping: Mapping, stops: Sequence[int]) -> None:
        self.costs, self.variant, self.stops = costs, variant, tuple(stops)
        self.depth = warmup_depths(variant.schedule, len(self.stops), variant.num_microbatches)
        self.first = tuple(int(n) for n in np.cumsum([0, *(run.num_stages for run in mapping)]))
        self.splits = tuple(run.split for run in mapping)
        spans = tuple(map(Span, (0, *self.stops), self.stops, self.depth))
        self.options = tuple(
            run_options(costs, variant, mapping, spans[self.first[k] : self.first[k + 1]], split=run.split)
            for k, run in enumerate(mapping)
        )
        self.scale_s = self._typical_s()
        self.program = pulp.LpProblem("mapping", pulp.LpMinimize)
        self.time = self.program.add_variable("T", lowBound=0)
        self.placed = [
            [self.program.add_variable(f"x_{k}_{o}", cat=pulp.LpBinary) for o in range(len(options))]
            for k, options in enumerate(self.options)
        ]
        self.joined = {
            (k, *pair): self.fraction(f"y_{k}_{n}")
            for k in self.runs[:-1]
            for n, pair in enumerate((e, f) for e in self.ends(k) for f in self.ends(k + 1))
        }
        self.forward, self.backward, self.tail = (self._numbers(name, len(self.stops)) for name in ("F", "B", "G"))
        self.transfer = self._numbers("C", len(self.stops) - 1)
        self.forward_before, self.backward_before = (self._numbers(name, len(self.stops)) for name in ("PF", "PB"))
        self.total = self.program.add_variable("total", lowBound=0)
        self.program += self.time

    @property
    def runs(self) -> range:
        """All k."""
        return range(len(self.splits))

    @property
    def stages(self) -> range:
        """All s."""
        return range(len(self.stops))

    def run_of(self, stage: int) -> int:
        """The run of a stage."""
        return int(np.searchsorted(self.first, stage, side="right")) - 1

    def ends(self, k: int) -> tuple[End, ...]:
        """Of the options of a run."""
        return tuple(dict.fromkeys(option.end for option in self.options[k]))

    def at(self, k: int, end: End) -> pulp.LpAffineExpression:
        """1 where the run is on such hosts."""
        return pulp.lpSum(x for x, option in zip(self.placed[k], self.options[k], strict=True) if option.end == end)

    def chosen(self, k: int, values_s: Sequence[float]) -> pulp.LpAffineExpression:
        """The value of the option that run k takes, over `scale_s`."""
        return pulp.lpSum(value / self.scale_s * x for x, value in zip(self.placed[k], values_s, strict=True))

    def of_stage(self, stage: int, values: str) -> pulp.LpAffineExpression:
        """A time of one stage, by the name of the field of its option."""
        k = self.run_of(stage)
        return self.chosen(k, [getattr(option, values)[stage - self.first[k]] for option in self.options[k]])

    def fraction(self, name: str) -> pulp.LpVariable:
        """A new variable in 0 .. 1."""
        return self.program.add_variable(name, lowBound=0, upBound=1)

    def tied_pairs(self) -> list[tuple[int, int, TiedWeights]]:
        """Runs that hold the same weights, where these are two."""
        pairs = []
        for tied in tied_weights(self.costs):
            owner, copy = (
                self.run_of(int(np.searchsorted(self.stops, layer, side="right"))) for layer in (tied.owner, tied.copy)
            )
            if owner != copy:
                pairs.append((min(owner, copy), max(owner, copy), tied))
        return pairs

    def message_bytes(self, stage: int) -> float:
        """Of one micro-batch over the boundary after a stage."""
        return self.variant.micro_batch * float(self.costs.problem.model.boundary_bytes()[self.stops[stage]])

    def _typical_s(self) -> float:
        """About one iteration time."""
        work_s = [
            self.variant.num_microbatches * (f + b)
            for options in self.options
            for option in options
            for f, b in zip(option.forward_s, option.backward_s, strict=True)
        ]
        return max(work_s, default=1.0) or 1.0

    def _numbers(self, name: str, count: int) -> list[pulp.LpVariable]:
        return [self.program.add_variable(f"{name}_{index}", lowBound=0) for index in range(count)]
