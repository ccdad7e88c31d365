"""Which host runs which stages: a mixed-integer program in PuLP, for one variant and given layers.

A pipeline is a sequence of *runs* of consecutive stages, each run for one host (or one stage for several
whole hosts). The layers of every stage are given; the host and the replicas are not.

Sets
    k in 1 .. K             runs; s in k the stages of a run, S in all
    g                       server classes, with N_g hosts for the pipeline
    o in O_k                options of a run: a class, and replicas and degree for its stages, as many of
                            them per island as the run has; e(o) its class and number of hosts

Parameters (s), from the cost model, recomputing where the stage would not fit otherwise
    F[s,o], B[s,o], G[s,o]  forward, backward; all-reduce and optimizer step
    c[s,o]                  transfer over the boundary after s inside a run
    c[s,e,e']               transfer between two runs
    A[s,o]                  all-reduces of the stages up to s that queue for the link of that of s; 0 if none
    z[e,e']                 sum of the gradients of tied weights between two runs
    M, d[s]                 micro-batches, warm-up depths

Variables
    x[k,o] binary           run k takes option o
    y[k,e,e'] >= 0          run k is on hosts e and run k + 1 on hosts e'
    w[e,e'] >= 0            the two runs with tied weights are on e and e'
    F_s, B_s, G_s, C_s >= 0 seconds of each stage where it is placed, and of the transfer after it
    PF_s, PB_s, total >= 0  a micro-batch alone: to the stage, from it back to the first stage, there and back
    T >= 0                  lower bound of the iteration time

Objective: min T. Each method named like a family adds the constraints in its docstring. The time of a stage is
a sum over its options, each with a number of its own, so no constraint needs a big-M.
"""

from collections.abc import Sequence

import numpy as np
import pulp

from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import pair_loops, warmup_depths
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.solvers.papers.autopipe_mapping.link_loads import TiedWeights, tied_weights
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import DeviceMapping, stages_per_island
from stagecut.planner.solvers.papers.autopipe_mapping.options import Hosts, Span, run_options
from stagecut.planner.solvers.search.pulp_highs import highs
from stagecut.planner.solvers.search.search import Search


class MappingProgram:
    """The program with all its constraints, those of link loads only with `loads`.

    `mapping` gives the number of stages of every run, and on every island in it; `costs` are those of the variant's
    share, `stops` the first layers after the stages.
    """

    def __init__(
        self, costs: CostModel, variant: Variant, mapping: DeviceMapping, stops: Sequence[int], *, loads: bool = True
    ) -> None:
        self._costs, self._stops, self._micro_batches = costs, tuple(stops), variant.num_microbatches
        self._message_bytes = variant.micro_batch * costs.problem.model.boundary_bytes()
        self._depth = warmup_depths(variant.schedule, len(stops), variant.num_microbatches)
        self._first = np.cumsum([0, *map(len, mapping)]).tolist()
        self._splits = tuple(map(stages_per_island, mapping))
        self._runs, self._stages = range(len(mapping)), range(len(stops))
        spans = tuple(map(Span, (0, *stops), stops, self._depth))
        self._options = tuple(
            run_options(costs, variant, mapping, spans[self._first[k] : self._first[k + 1]], split=split)
            for k, split in enumerate(self._splits)
        )
        self._hosts = tuple(tuple(dict.fromkeys(option.hosts for option in options)) for options in self._options)
        # Times are in units of about one iteration.
        self._scale_s = self._busiest_s() or 1.0
        self._program = pulp.LpProblem("mapping", pulp.LpMinimize)
        self._add_variables()
        self._program += self._time
        families = [self.one_option_per_run, self.host_counts, self.joints, self.times, self.prefixes]
        families += [self.busy, self.fill, self.sync, self.link, self.pair]
        for family in families + [self.queued_all_reduces, self.inside_hosts, self.interfaces] * loads:
            family()

    def solve(self, search: Search, seconds: float) -> DeviceMapping | None:
        """The best mapping found; None if there is none, or none in time."""
        if not all(self._options):
            return None
        self._program.solve(highs(search, seconds))
        if self._program.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return None
        picks = [max(range(len(row)), key=lambda o: row[o].varValue or 0.0) for row in self._placed]
        return tuple(options[pick].run for options, pick in zip(self._options, picks, strict=True))

    @property
    def value_s(self) -> float:
        """T of the solution."""
        return float(self._time.varValue or 0.0) * self._scale_s

    def _add_variables(self) -> None:
        number, num_stages = self._program.add_variable, len(self._stages)

        def numbers(name: str, count: int = num_stages) -> list[pulp.LpVariable]:
            return [number(f"{name}_{index}", lowBound=0) for index in range(count)]

        self._time = number("T", lowBound=0)
        self._placed = [
            [number(f"x_{k}_{o}", cat=pulp.LpBinary) for o in range(len(options))]
            for k, options in enumerate(self._options)
        ]
        self._joined = {
            (k, *pair): number(f"y_{k}_{n}", lowBound=0, upBound=1)
            for k in self._runs[:-1]
            for n, pair in enumerate((e, f) for e in self._hosts[k] for f in self._hosts[k + 1])
        }
        self._forward, self._backward, self._tail = numbers("F"), numbers("B"), numbers("G")
        self._transfer = numbers("C", num_stages - 1)
        self._forward_before, self._backward_before = numbers("PF"), numbers("PB")
        self._total = number("total", lowBound=0)

    def one_option_per_run(self) -> None:
        """Sum over o of x[k,o] = 1."""
        for k in self._runs:
            self._program += pulp.lpSum(self._placed[k]) == 1

    def host_counts(self) -> None:
        """The hosts of class g that all runs take together are at most N_g."""
        for index, server in enumerate(self._costs.cluster.servers):
            used = [
                option.hosts[1] * x
                for k in self._runs
                for x, option in zip(self._placed[k], self._options[k], strict=True)
                if option.hosts[0] == index
            ]
            self._program += pulp.lpSum(used) <= server.count

    def joints(self) -> None:
        """Sum over e' of y[k,e,e'] = 1 if run k is on e; sum over e of y[k,e,e'] = 1 if run k + 1 is on e'; else 0."""
        for k in self._runs[:-1]:
            for e in self._hosts[k]:
                self._program += pulp.lpSum(self._joined[k, e, f] for f in self._hosts[k + 1]) == self._at(k, e)
            for f in self._hosts[k + 1]:
                self._program += pulp.lpSum(self._joined[k, e, f] for e in self._hosts[k]) == self._at(k + 1, f)

    def times(self) -> None:
        """F_s = sum over o of F[s,o] x[k,o], B_s, G_s and C_s alike; between runs C_s = sum of c[s,e,e'] y[k,e,e']."""
        for s in self._stages:
            self._program += self._forward[s] == self._of_stage(s, "forward_s")
            self._program += self._backward[s] == self._of_stage(s, "backward_s")
            self._program += self._tail[s] == self._of_stage(s, "tail_s")
        for s in self._stages[:-1]:
            inside = s + 1 not in self._first
            self._program += self._transfer[s] == (self._of_stage(s, "transfer_s") if inside else self._between(s))

    def prefixes(self) -> None:
        """PF_{s+1} = PF_s + F_s + C_s and PB_{s+1} = PB_s + B_s + C_s, from 0; total is the sum of both at the end."""
        self._program += self._forward_before[0] == 0
        self._program += self._backward_before[0] == 0
        for s in self._stages[:-1]:
            c = self._transfer[s]
            self._program += self._forward_before[s + 1] == self._forward_before[s] + self._forward[s] + c
            self._program += self._backward_before[s + 1] == self._backward_before[s] + self._backward[s] + c
        last = (self._forward_before, self._forward, self._backward_before, self._backward)
        self._program += self._total == pulp.lpSum(each[-1] for each in last)

    def busy(self) -> None:
        """T >= PF_s + M (F_s + B_s) + PB_s + G_0."""
        for s in self._stages:
            self._program += self._time >= self._done(s) + self._backward_before[s] + self._tail[0]

    def fill(self) -> None:
        """T >= total + (M - 1)(F_s + B_s) - (d_s - 1) F_s + G_0."""
        more = self._micro_batches - 1
        for s in self._stages:
            later = (more - self._depth[s] + 1) * self._forward[s] + more * self._backward[s]
            self._program += self._time >= self._total + later + self._tail[0]

    def sync(self) -> None:
        """T >= PF_s + M (F_s + B_s) + G_s."""
        for s in self._stages:
            self._program += self._time >= self._done(s) + self._tail[s]

    def link(self) -> None:
        """T >= total + (M - 1) C_s + G_0."""
        for transfer in self._transfer:
            self._program += self._time >= self._total + (self._micro_batches - 1) * transfer + self._tail[0]

    def pair(self) -> None:
        """T >= total + n (F + B of s and s + 1, + 2 C_s) + (M - 1 - a n) B_s + max(0, M - d_s - a n) F_s + G_0.

        a and n are those of docs/bounds.md.
        """
        depth = np.array(self._depth)
        per_loop, loops = pair_loops(depth[:-1], depth[1:], self._micro_batches)
        for s, (a, n) in enumerate(zip(per_loop.tolist(), loops.tolist(), strict=True)):
            loop = pulp.lpSum([*self._forward[s : s + 2], *self._backward[s : s + 2], 2 * self._transfer[s]])
            left = self._micro_batches - a * n
            rest = (left - 1) * self._backward[s] + max(0, left - self._depth[s]) * self._forward[s]
            self._program += self._time >= self._total + n * loop + rest + self._tail[0]

    def queued_all_reduces(self) -> None:
        """T >= PF_s + M (F_s + B_s) + A_s."""
        for s in self._stages:
            self._program += self._time >= self._done(s) + self._of_stage(s, "queued_s")

    def inside_hosts(self) -> None:
        """Loads of the shared fabric of each island, and of the bridge of each host.

        With a the first boundary on the link: T >= PF_a + F_a + 2 M (sum of its c) + PB_{a+1} - C_a + G_0,
        and T >= PF_a + F_a + 2 M (sum of its c) + (sum of its all-reduces).
        """
        for k in self._runs:
            ends = [self._first[k] + end for end in np.cumsum(self._splits[k]).tolist()]
            for island, (begin, end) in enumerate(zip([self._first[k], *ends], ends, strict=False)):
                all_reduces = self._chosen(k, [option.island_s[island] for option in self._options[k]])
                self._shared_link(range(begin, end - 1), all_reduces)
            self._shared_link([end - 1 for end in ends[:-1]], pulp.lpSum([]))

    def _shared_link(self, boundaries: Sequence[int], all_reduces: pulp.LpAffineExpression) -> None:
        if not boundaries:
            return
        a = boundaries[0]
        messages = pulp.lpSum(self._of_stage(s, "queueing_s") for s in boundaries)
        load = self._forward_before[a] + self._forward[a] + 2 * self._micro_batches * messages
        self._program += self._time >= load + self._backward_before[a + 1] - self._transfer[a] + self._tail[0]
        self._program += self._time >= load + all_reduces

    def interfaces(self) -> None:
        """Loads of the interfaces of each run, into and out of its hosts.

        With a the boundary before the run, b the one after it, and L = M (C_a + C_b):
        into: T >= PF_a + F_a + L + PB_{b+1} - C_b + G_0;  out: T >= PF_b + F_b + L + PB_{a+1} - C_a + G_0;
        at either end of the pipeline, where a or b is missing, as for the other one alone. The same with sums
        of tied weights, and with those and all-reduces, in place of what follows L.
        """
        sums = [pulp.lpSum([]) for _ in self._runs]
        for tied in tied_weights(self._costs):
            owner, copy = (
                self._run_of(int(np.searchsorted(self._stops, layer, side="right")))
                for layer in (tied.owner, tied.copy)
            )
            if owner != copy:
                seconds = self._tied(min(owner, copy), max(owner, copy), tied)
                sums[owner], sums[copy] = sums[owner] + seconds, sums[copy] + seconds
        for k in self._runs if len(self._runs) > 1 else ():
            before, after = self._first[k] - 1, self._first[k + 1] - 1
            # Activations come in over `before` and leave over `after`, gradients the other way round.
            self._interface(k, outward=before, homeward=after, sums=sums[k])
            self._interface(k, outward=after, homeward=before, sums=sums[k])

    def _interface(self, k: int, *, outward: int, homeward: int, sums: pulp.LpAffineExpression) -> None:
        """One direction; a boundary outside the pipeline carries nothing."""
        inner, last = self._stages[:-1], self._first[k + 1] - 1
        load = self._micro_batches * pulp.lpSum(self._transfer[s] for s in (outward, homeward) if s in inner)
        all_reduces = self._chosen(k, [option.interface_s for option in self._options[k]])
        if outward in inner:
            ready = first = self._forward_before[outward] + self._forward[outward]
        else:
            ready = self._total - self._backward_before[homeward + 1]
            first = self._total - self._backward_before[max(homeward + 1, last)]
        if homeward in inner:
            left = self._backward_before[homeward + 1] - self._transfer[homeward]
        else:
            left = self._total - self._forward_before[outward] - self._forward[outward] - self._transfer[outward]
        self._program += self._time >= ready + load + left + self._tail[0]
        self._program += self._time >= ready + load + sums
        self._program += self._time >= first + load + sums + all_reduces

    def _tied(self, first: int, second: int, tied: TiedWeights) -> pulp.LpAffineExpression:
        """Seconds of the sum between two runs: sum of z[e,e'] w[e,e'], where w >= (first at e) + (second at e') - 1."""
        terms = list[pulp.LpAffineExpression]()
        for e in self._hosts[first]:
            for f in self._hosts[second]:
                seconds = tied.sum_s(link_between_hosts(self._costs.cluster, e, f))
                name = f"w_{first}_{second}_{tied.copy}_{len(terms)}"
                both = self._program.add_variable(name, lowBound=0, upBound=1)
                self._program += both >= self._at(first, e) + self._at(second, f) - 1
                terms.append(seconds / self._scale_s * both)
        return pulp.lpSum(terms)

    def _between(self, stage: int) -> pulp.LpAffineExpression:
        """Transfer from the last stage of a run to the next run."""
        cluster, k, message_bytes = self._costs.cluster, self._run_of(stage), self._message_bytes[self._stops[stage]]
        return pulp.lpSum(
            link_between_hosts(cluster, e, f).transfer_s(float(message_bytes)) / self._scale_s * self._joined[k, e, f]
            for e in self._hosts[k]
            for f in self._hosts[k + 1]
        )

    def _done(self, stage: int) -> pulp.LpAffineExpression:
        """Earliest end of the last backward: PF_s + M (F_s + B_s)."""
        work = self._forward[stage] + self._backward[stage]
        return self._forward_before[stage] + self._micro_batches * work

    def _run_of(self, stage: int) -> int:
        return int(np.searchsorted(self._first, stage, side="right")) - 1

    def _at(self, k: int, hosts: Hosts) -> pulp.LpAffineExpression:
        """1 where run k is on such hosts, else 0."""
        options = zip(self._placed[k], self._options[k], strict=True)
        return pulp.lpSum(x for x, option in options if option.hosts == hosts)

    def _chosen(self, k: int, values_s: Sequence[float]) -> pulp.LpAffineExpression:
        """The value of the option that run k takes, in units of the program."""
        return pulp.lpSum(value / self._scale_s * x for x, value in zip(self._placed[k], values_s, strict=True))

    def _of_stage(self, stage: int, field: str) -> pulp.LpAffineExpression:
        """A time of one stage, by the name of the field of its options."""
        k = self._run_of(stage)
        return self._chosen(k, [getattr(option, field)[stage - self._first[k]] for option in self._options[k]])

    def _busiest_s(self) -> float:
        """The most seconds that the micro-batches of any stage take under any option."""
        options = [option for options in self._options for option in options]
        work_s = [f + b for option in options for f, b in zip(option.forward_s, option.backward_s, strict=True)]
        return self._micro_batches * max(work_s, default=0.0)
