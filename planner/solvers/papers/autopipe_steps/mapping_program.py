"""Stages with fixed layers to servers, as a mixed-integer program in PuLP, for one variant.

Sets, parameters and variables are those of :mod:`planner.solvers.papers.autopipe_steps.mapping_model`.

Objective: min T. Families of rows are the functions of this module. A stage time is one sum over
options, and every option has its own number, so no row needs a big-M.
"""

from collections.abc import Sequence

import numpy as np
import pulp

from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import pair_loops
from stagecut.planner.cost.collectives import ring_all_reduce_s
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.solvers.papers.autopipe_steps.mapping_links import TiedWeights
from stagecut.planner.solvers.papers.autopipe_steps.mapping_model import MappingModel
from stagecut.planner.solvers.papers.autopipe_steps.mapping_shapes import Mapping
from stagecut.planner.solvers.search.pulp_highs import highs
from stagecut.planner.solvers.search.search import Search


class MappingProgram:
    """The program with all its rows.

    Parameters
    ----------
    costs, variant, mapping, stops
        See :class:`MappingModel`.
    loads
        Whether the link-load rows count.
    """

    def __init__(
        self, costs: CostModel, variant: Variant, mapping: Mapping, stops: Sequence[int], *, loads: bool = True
    ) -> None:
        self.model = MappingModel(costs, variant, mapping, stops)
        for family in (*FAMILIES, *(LOAD_FAMILIES if loads else ())):
            family(self.model)

    def solve(self, search: Search, seconds: float) -> Mapping | None:
        """The best mapping found; None if there is none, or none in time."""
        program, options = self.model.program, self.model.options
        if not all(options):
            return None
        program.solve(highs(search, seconds))
        if program.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return None
        picks = [max(range(len(row)), key=lambda o: row[o].varValue or 0.0) for row in self.model.placed]
        return tuple(choices[pick].run for choices, pick in zip(options, picks, strict=True))

    @property
    def value_s(self) -> float:
        """T of the solution."""
        return float(self.model.time.varValue or 0.0) * self.model.scale_s


def one_option_per_run(model: MappingModel) -> None:
    """Sum over o of x[k,o] = 1."""
    for k in model.runs:
        model.program += pulp.lpSum(model.placed[k]) == 1


def host_counts(model: MappingModel) -> None:
    """For every class: the hosts of all runs on it are at most N_g."""
    for index, server in enumerate(model.costs.cluster.servers):
        used = [
            option.run.num_hosts * x
            for k in model.runs
            for x, option in zip(model.placed[k], model.options[k], strict=True)
            if option.run.server_class == index
        ]
        model.program += pulp.lpSum(used) <= server.count


def joints(model: MappingModel) -> None:
    """Sum over e' of y[k,e,e'] = run k is at e; sum over e of y[k,e,e'] = run k + 1 is at e'."""
    for k in model.runs[:-1]:
        for e in model.ends(k):
            model.program += pulp.lpSum(model.joined[k, e, f] for f in model.ends(k + 1)) == model.at(k, e)
        for f in model.ends(k + 1):
            model.program += pulp.lpSum(model.joined[k, e, f] for e in model.ends(k)) == model.at(k + 1, f)


def times(model: MappingModel) -> None:
    """F_s = sum over o of F[s,o] x[k,o], B_s, G_s and C_s alike; between runs C_s = sum of c[s,e,e'] y[k,e,e']."""
    for s in model.stages:
        model.program += model.forward[s] == model.of_stage(s, "forward_s")
        model.program += model.backward[s] == model.of_stage(s, "backward_s")
        model.program += model.tail[s] == model.of_stage(s, "tail_s")
    for s in model.stages[:-1]:
        k = model.run_of(s)
        inside = s + 1 < model.first[k + 1]
        model.program += model.transfer[s] == (model.of_stage(s, "transfer_s") if inside else _between(model, s, k))


def prefixes(model: MappingModel) -> None:
    """PF_{s+1} = PF_s + F_s + C_s and PB_{s+1} = PB_s + B_s + C_s, from 0; total is what both come to at the end."""
    model.program += model.forward_before[0] == 0
    model.program += model.backward_before[0] == 0
    for s in model.stages[:-1]:
        c = model.transfer[s]
        model.program += model.forward_before[s + 1] == model.forward_before[s] + model.forward[s] + c
        model.program += model.backward_before[s + 1] == model.backward_before[s] + model.backward[s] + c
    ends = (model.forward_before[-1], model.forward[-1], model.backward_before[-1], model.backward[-1])
    model.program += model.total == pulp.lpSum(ends)


def busy(model: MappingModel) -> None:
    """T >= PF_s + M (F_s + B_s) + PB_s + G_0."""
    for s in model.stages:
        model.program += model.time >= _done(model, s) + model.backward_before[s] + model.tail[0]


def fill(model: MappingModel) -> None:
    """T >= total + (M - 1)(F_s + B_s) - (d_s - 1) F_s + G_0."""
    more = model.variant.num_microbatches - 1
    for s in model.stages:
        later = (more - model.depth[s] + 1) * model.forward[s] + more * model.backward[s]
        model.program += model.time >= model.total + later + model.tail[0]


def sync(model: MappingModel) -> None:
    """T >= PF_s + M (F_s + B_s) + G_s."""
    for s in model.stages:
        model.program += model.time >= _done(model, s) + model.tail[s]


def link(model: MappingModel) -> None:
    """T >= total + (M - 1) c_s + G_0."""
    for s in model.stages[:-1]:
        more = (model.variant.num_microbatches - 1) * model.transfer[s]
        model.program += model.time >= model.total + more + model.tail[0]


def pair(model: MappingModel) -> None:
    """T >= total + n (F + B of s and s + 1, + 2 c_s) + (M - 1 - a n) B_s + G_0; a and n as in docs/bounds.md."""
    micro_batches, depth = model.variant.num_microbatches, np.array(model.depth)
    per_loop, loops = pair_loops(depth[:-1], depth[1:], micro_batches)
    for s, (a, n) in enumerate(zip(per_loop.tolist(), loops.tolist(), strict=True)):
        loop = pulp.lpSum([*model.forward[s : s + 2], *model.backward[s : s + 2], 2 * model.transfer[s]])
        left = micro_batches - a * n
        rest = (left - 1) * model.backward[s] + max(0, left - model.depth[s]) * model.forward[s]
        model.program += model.time >= model.total + n * loop + rest + model.tail[0]


def queued_all_reduces(model: MappingModel) -> None:
    """T >= PF_s + M (F_s + B_s) + A_s."""
    for s in model.stages:
        model.program += model.time >= _done(model, s) + model.of_stage(s, "queued_s")


def inside_hosts(model: MappingModel) -> None:
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


def interfaces(model: MappingModel) -> None:
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


def _between(model: MappingModel, stage: int, k: int) -> pulp.LpAffineExpression:
    """Transfer from the last stage of run k to the next run."""
    cluster, message_bytes = model.costs.cluster, model.message_bytes(stage)
    return pulp.lpSum(
        link_between_hosts(cluster, e, f).transfer_s(message_bytes) / model.scale_s * model.joined[k, e, f]
        for e in model.ends(k)
        for f in model.ends(k + 1)
    )


def _tied(model: MappingModel, first: int, second: int, tied: TiedWeights) -> pulp.LpAffineExpression:
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


def _done(model: MappingModel, stage: int) -> pulp.LpAffineExpression:
    """Earliest end of the last backward: PF_s + M (F_s + B_s)."""
    work = model.forward[stage] + model.backward[stage]
    return model.forward_before[stage] + model.variant.num_microbatches * work


def _line(model: MappingModel, k: int, boundaries: Sequence[int], all_reduces_s: Sequence[float]) -> None:
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


def _interface(model: MappingModel, k: int, *, outward: int, homeward: int, sums: pulp.LpAffineExpression) -> None:
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
