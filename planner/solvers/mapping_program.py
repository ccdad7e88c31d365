"""Stages with fixed layers to servers, as a mixed-integer program in PuLP, for one variant.

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

Objective: min T. Families of rows are the functions of this module. A stage time is one sum over
options, and every option has its own number, so no row needs a big-M.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pulp

from planner.core.problem import Variant
from planner.core.schedule import pair_loops, warmup_depths
from planner.cost.collectives import ring_all_reduce_s
from planner.cost.cost_model import CostModel
from planner.cost.links import link_between_hosts
from planner.solvers.mapping_links import TiedWeights, tied_weights
from planner.solvers.mapping_options import End, Span, run_options
from planner.solvers.mapping_shapes import Mapping
from planner.solvers.search import Search

TOLERANCE = 1e-9
"""Of rows and integers."""
LONGEST_S = 1e7
"""What "no time limit" is for HiGHS."""


class MappingProgram:
    """Sets, parameters and variables; `program` is the PuLP problem with all rows.

    Parameters
    ----------
    costs
        Of the variant's share.
    mapping
        Gives the number of stages of every run, and of every island inside it.
    stops
        First layer after each stage.
    loads
        Whether the link-load rows count.
    """

    def __init__(
        self, costs: CostModel, variant: Variant, mapping: Mapping, stops: Sequence[int], *, loads: bool = True
    ) -> None:
        self.costs, self.variant, self.stops, self.loads = costs, variant, tuple(stops), loads
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
        for family in (*FAMILIES, *(LOAD_FAMILIES if loads else ())):
            family(self)

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

    def solve(self, search: Search, seconds: float) -> Mapping | None:
        """The best mapping found; None if there is none, or none in time."""
        if not all(self.options):
            return None
        self.program.solve(_highs(search, seconds))
        if self.program.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return None
        picks = [max(range(len(row)), key=lambda o: row[o].varValue or 0.0) for row in self.placed]
        return tuple(options[pick].run for options, pick in zip(self.options, picks, strict=True))

    def fraction(self, name: str) -> pulp.LpVariable:
        """A new variable in 0 .. 1."""
        return self.program.add_variable(name, lowBound=0, upBound=1)

    @property
    def value_s(self) -> float:
        """T of the solution."""
        return float(self.time.varValue or 0.0) * self.scale_s

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


def one_option_per_run(model: MappingProgram) -> None:
    """Sum over o of x[k,o] = 1."""
    for k in model.runs:
        model.program += pulp.lpSum(model.placed[k]) == 1


def host_counts(model: MappingProgram) -> None:
    """For every class: the hosts of all runs on it are at most N_g."""
    for index, server in enumerate(model.costs.cluster.servers):
        used = [
            option.run.num_hosts * x
            for k in model.runs
            for x, option in zip(model.placed[k], model.options[k], strict=True)
            if option.run.server_class == index
        ]
        model.program += pulp.lpSum(used) <= server.count


def joints(model: MappingProgram) -> None:
    """Sum over e' of y[k,e,e'] = run k is at e; sum over e of y[k,e,e'] = run k + 1 is at e'."""
    for k in model.runs[:-1]:
        for e in model.ends(k):
            model.program += pulp.lpSum(model.joined[k, e, f] for f in model.ends(k + 1)) == model.at(k, e)
        for f in model.ends(k + 1):
            model.program += pulp.lpSum(model.joined[k, e, f] for e in model.ends(k)) == model.at(k + 1, f)


def times(model: MappingProgram) -> None:
    """F_s = sum over o of F[s,o] x[k,o], B_s, G_s and C_s alike; between runs C_s = sum of c[s,e,e'] y[k,e,e']."""
    for s in model.stages:
        model.program += model.forward[s] == model.of_stage(s, "forward_s")
        model.program += model.backward[s] == model.of_stage(s, "backward_s")
        model.program += model.tail[s] == model.of_stage(s, "tail_s")
    for s in model.stages[:-1]:
        k = model.run_of(s)
        inside = s + 1 < model.first[k + 1]
        model.program += model.transfer[s] == (model.of_stage(s, "transfer_s") if inside else _between(model, s, k))


def prefixes(model: MappingProgram) -> None:
    """PF_{s+1} = PF_s + F_s + C_s and PB_{s+1} = PB_s + B_s + C_s, from 0; total is what both come to at the end."""
    model.program += model.forward_before[0] == 0
    model.program += model.backward_before[0] == 0
    for s in model.stages[:-1]:
        c = model.transfer[s]
        model.program += model.forward_before[s + 1] == model.forward_before[s] + model.forward[s] + c
        model.program += model.backward_before[s + 1] == model.backward_before[s] + model.backward[s] + c
    ends = (model.forward_before[-1], model.forward[-1], model.backward_before[-1], model.backward[-1])
    model.program += model.total == pulp.lpSum(ends)


def busy(model: MappingProgram) -> None:
    """T >= PF_s + M (F_s + B_s) + PB_s + G_0."""
    for s in model.stages:
        model.program += model.time >= _done(model, s) + model.backward_before[s] + model.tail[0]


def fill(model: MappingProgram) -> None:
    """T >= total + (M - 1)(F_s + B_s) - (d_s - 1) F_s + G_0."""
    more = model.variant.num_microbatches - 1
    for s in model.stages:
        later = (more - model.depth[s] + 1) * model.forward[s] + more * model.backward[s]
        model.program += model.time >= model.total + later + model.tail[0]


def sync(model: MappingProgram) -> None:
    """T >= PF_s + M (F_s + B_s) + G_s."""
    for s in model.stages:
        model.program += model.time >= _done(model, s) + model.tail[s]


def link(model: MappingProgram) -> None:
    """T >= total + (M - 1) c_s + G_0."""
    for s in model.stages[:-1]:
        more = (model.variant.num_microbatches - 1) * model.transfer[s]
        model.program += model.time >= model.total + more + model.tail[0]


def pair(model: MappingProgram) -> None:
    """T >= total + n (F + B of s and s + 1, + 2 c_s) + (M - 1 - a n) B_s + G_0; a and n as in docs/bounds.md."""
    micro_batches, depth = model.variant.num_microbatches, np.array(model.depth)
    per_loop, loops = pair_loops(depth[:-1], depth[1:], micro_batches)
    for s, (a, n) in enumerate(zip(per_loop.tolist(), loops.tolist(), strict=True)):
        loop = pulp.lpSum([*model.forward[s : s + 2], *model.backward[s : s + 2], 2 * model.transfer[s]])
        left = micro_batches - a * n
        rest = (left - 1) * model.backward[s] + max(0, left - model.depth[s]) * model.forward[s]
        model.program += model.time >= model.total + n * loop + rest + model.tail[0]


def queued_all_reduces(model: MappingProgram) -> None:
    """T >= PF_s + M (F_s + B_s) + A_s."""
    for s in model.stages:
        model.program += model.time >= _done(model, s) + model.of_stage(s, "queued_s")


def inside_hosts(model: MappingProgram) -> None:
    """Messages, and then all-reduces too, on the shared fabric of each island and on the bridge of each host.

    With a the first boundary on the line: T >= PF_a + F_a + 2 M (sum of c on the line) + PB_{a+1} - c_a + G_0,
    and T >= PF_a + F_a + 2 M (sum of c on the line) + (sum of its all-reduces).
    """
    for k in model.runs:
        ends = np.cumsum(model.splits[k])
        begins = ends - np.array(model.splits[k])
        for island, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            _line(model, k, range(begin, end - 1), [option.island_s[island] for option in model.options[k]])
        _line(model, k, [int(end) - 1 for end in ends[:-1]], [0.0] * len(model.options[k]))


def interfaces(model: MappingProgram) -> None:
    """Messages, and then all-reduces and sums of tied weights too, into and out of the hosts of each run.

    With a the boundary before the run and b the one after it, L = M (c_a + c_b):
    into: T >= PF_a + F_a + L + PB_{b+1} - c_b + G_0;  out: T >= PF_b + F_b + L + PB_{a+1} - c_a + G_0;
    at either end of the pipeline, where one of the two is lacking, as for the other alone. With sums
    of tied weights, and then with all-reduces too, instead of what follows.
    """
    sums = [pulp.lpSum([]) for _ in model.runs]
    for first, second, tied in model.tied_pairs():
        seconds = _tied(model, first, second, tied)
        sums[first], sums[second] = sums[first] + seconds, sums[second] + seconds
    for k in model.runs if len(model.runs) > 1 else ():
        before, after = model.first[k] - 1, model.first[k + 1] - 1
        # Activations come in over `before` and go out over `after`, gradients the other way round.
        _interface(model, k, outward=before, homeward=after, sums=sums[k])
        _interface(model, k, outward=after, homeward=before, sums=sums[k])


FAMILIES = (one_option_per_run, host_counts, joints, times, prefixes, busy, fill, sync, link, pair)
LOAD_FAMILIES = (queued_all_reduces, inside_hosts, interfaces)


def _between(model: MappingProgram, stage: int, k: int) -> pulp.LpAffineExpression:
    """Transfer from the last stage of run k to the next run."""
    cluster, message_bytes = model.costs.cluster, model.message_bytes(stage)
    return pulp.lpSum(
        link_between_hosts(cluster, e, f).transfer_s(message_bytes) / model.scale_s * model.joined[k, e, f]
        for e in model.ends(k)
        for f in model.ends(k + 1)
    )


def _tied(model: MappingProgram, first: int, second: int, tied: TiedWeights) -> pulp.LpAffineExpression:
    """Seconds of the sum between two runs: sum of z[e,e'] w[e,e'], with w >= at e + at e' - 1."""
    terms = list[pulp.LpAffineExpression]()
    for e in model.ends(first):
        for f in model.ends(second):
            link = link_between_hosts(model.costs.cluster, e, f)
            seconds = float(ring_all_reduce_s(np.array([tied.gradient_bytes]), 2, link)[0])
            both = model.fraction(f"w_{first}_{second}_{tied.copy}_{len(terms)}")
            model.program += both >= model.at(first, e) + model.at(second, f) - 1
            terms.append(seconds / model.scale_s * both)
    return pulp.lpSum(terms)


def _done(model: MappingProgram, stage: int) -> pulp.LpAffineExpression:
    """Earliest end of the last backward: PF_s + M (F_s + B_s)."""
    work = model.forward[stage] + model.backward[stage]
    return model.forward_before[stage] + model.variant.num_microbatches * work


def _line(model: MappingProgram, k: int, boundaries: Sequence[int], all_reduces_s: Sequence[float]) -> None:
    """Rows of one line inside a host; boundaries are numbered from the first stage of the run."""
    if not len(boundaries):
        return
    a = model.first[k] + boundaries[0]
    load = (
        2
        * model.variant.num_microbatches
        * pulp.lpSum(model.of_stage(model.first[k] + boundary, "line_s") for boundary in boundaries)
    )
    ready = model.forward_before[a] + model.forward[a]
    left = model.backward_before[a + 1] - model.transfer[a] + model.tail[0]
    model.program += model.time >= ready + load + left
    model.program += model.time >= ready + load + model.chosen(k, all_reduces_s)


def _interface(model: MappingProgram, k: int, *, outward: int, homeward: int, sums: pulp.LpAffineExpression) -> None:
    """Rows of one direction; a boundary outside the pipeline carries nothing."""
    inner, last = model.stages[:-1], model.first[k + 1] - 1
    load = model.variant.num_microbatches * pulp.lpSum(model.transfer[s] for s in (outward, homeward) if s in inner)
    all_reduces = model.chosen(k, [option.interface_s for option in model.options[k]])
    if outward in inner:
        ready = first = model.forward_before[outward] + model.forward[outward]
    else:
        ready = model.total - model.backward_before[homeward + 1]
        first = model.total - model.backward_before[max(homeward + 1, last)]
    if homeward in inner:
        left = model.backward_before[homeward + 1] - model.transfer[homeward]
    else:
        left = model.total - model.forward_before[outward] - model.forward[outward] - model.transfer[outward]
    model.program += model.time >= ready + load + left + model.tail[0]
    model.program += model.time >= ready + load + sums
    model.program += model.time >= first + load + sums + all_reduces


def _highs(search: Search, seconds: float) -> pulp.LpSolver:
    def stop_if_cancelled(kind: object, message: str, data_out: object, data_in: Any, owner: object) -> None:
        data_in.user_interrupt = search.cancelled

    return pulp.HiGHS(
        # Callbacks never fire while the output is off.
        msg=True,
        log_to_console=False,
        callbackTuple=(stop_if_cancelled, None),
        callbacksToActivate=[pulp.HiGHS.hscb.HighsCallbackType.kCallbackMipInterrupt],
        timeLimit=min(max(0.0, seconds), LONGEST_S),
        gapRel=0.0,
        gapAbs=0.0,
        threads=search.options.threads,
        random_seed=search.options.seed,
        # With presolve HiGHS may call a worse plan optimal: see planner.solvers.textbook_milp.
        presolve="off",
        mip_feasibility_tolerance=1e-7,
        primal_feasibility_tolerance=TOLERANCE,
        dual_feasibility_tolerance=TOLERANCE,
    )
