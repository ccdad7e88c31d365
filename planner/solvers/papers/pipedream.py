"""PipeDream: the slowest stage as short as possible, level by level of the network.

Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019; formulas as in the authors'
published program (`optimizer_graph_hierarchical.py`), which differ from the paper's. The devices form nested levels,
devices in a server and then servers, each level with links of one speed.

**Objective**: the time between two minibatches in the steady state, which is that of the slowest stage, or of the
slowest transfer of activations and gradients. With a_j the activations at boundary j (none at the end of the model), w
the weights of layers [i, j), and m components of a level (devices, or servers) whose links have bandwidth beta,

    A(i, j, m) = min over cuts s and m' of  max( A(i, s, m - m'), T(s, j, m'), 2 a_s / (beta m'), 2 a_j / (beta m') ),
                 or uncut  1/m ( A'(i, j) + 4 (m - 1)/m |w| / (beta n) ),
    T(s, j, m) = 1/m ( A'(s, j) + 4 (m - 1)/m |w| / beta ),

where A' is A of the level below on one whole component, n the components of that level, and on a single device A' is
the forwards and backwards of layers [i, j): m replicas compute m minibatches at once, then sum their gradients. (The
paper takes the larger of computation and sum instead of their sum, 2 (m - 1) |w|, and whole transfers.) This is what
the program minimises with `--activation_compression_ratio 1`, without which it counts no transfers, and
`--use_fewer_machines`.

**Search**: a dynamic program over (i, j, m) for each level, the inner one first.

Approximated here:

- Plans run as synchronous `1f1b`, whereas the paper's pipeline never drains and keeps several versions of the weights.
  A minibatch is our micro-batch, which the m replicas split; the program's T is kept, with its 1/m and with a sum of
  gradients for every micro-batch, though a synchronous iteration has only one.
- A stage on several servers uses all their devices. The paper could also replicate a pipeline inside a server over some
  of the servers; here a host has its own run of stages, so this is possible only for the whole plan: several identical
  pipelines, one on every server, or one on every device. Where the job allows these, they are part of the recursion:
  for each micro-batch size its minimum over the numbers of pipelines is kept.
- The model is a chain, and A is taken over its cuts; in the program a cut may be behind any set of nodes that can come
  first in the graph.
- Components may stay idle, since the replicas of a stage must divide the micro-batch.
- Memory: a stage must fit with one micro-batch in flight. If the plan turns out not to fit under 1F1B, the program is
  run again for 2, 4, 8, ... in flight in every stage, until its plan fits.
- Latencies are ignored.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.share import WHOLE
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, UniformGroup, uniform_cluster
from stagecut.planner.solvers.papers.uniform.intervals import held_weight_bytes, interval_sums
from stagecut.planner.solvers.papers.uniform.variants import offer_least, uniform_variants
from stagecut.planner.solvers.search.refusals import require_single_devices
from stagecut.planner.solvers.search.search import Search

NAME = "pipedream"
OBJECTIVE = "time per sample of the slowest stage, s"


def solve(problem: Problem, search: Search) -> Result:
    """The plan with the shortest slowest stage of every micro-batch size; the simulator picks; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows neither one pipeline nor one on every server or device, or not 1F1B or single devices,
        or if servers have unequal numbers of devices.
    """
    require_single_devices(problem, NAME)
    whole = uniform_cluster(search.costs.of(WHOLE), NAME)
    variants = [pair for pair in uniform_variants(search, NAME) if _is_component(pair[1], whole)]
    if not variants:
        known = sorted({1, whole.num_servers, whole.num_devices})
        raise UnsupportedError(
            f"solver {NAME!r} plans for one pipeline, or for one on every server or device, but the job allows "
            f"no such number of pipelines; allow pipelines of {', '.join(map(str, known))}"
        )

    def planned(search: Search, variant: Variant, uniform: UniformCluster) -> tuple[Plan, float] | None:
        found = _plan_that_fits(variant, uniform)
        return found and (found[0], _of_all_pipelines(whole, uniform, found[1]) / variant.micro_batch)

    offer_least(search, variants, planned, OBJECTIVE)
    return search.result(NAME, proves=False)


def _is_component(part: UniformCluster, whole: UniformCluster) -> bool:
    """Whether each pipeline has everything, a whole server, or a single device."""
    return part.num_devices in (1, whole.num_devices) or (
        part.num_servers == 1 and part.devices_per_server == whole.devices_per_server
    )


def _of_all_pipelines(whole: UniformCluster, part: UniformCluster, slowest_s: float) -> float:
    """T of the levels above a pipeline, which is replicated over all their components."""
    seconds, weight_bytes = np.array([slowest_s]), interval_sums(held_weight_bytes(whole.costs.problem.model))[0, -1:]
    size = whole.devices_per_server
    if part.devices_per_server < size:
        seconds = replicated_s(seconds, weight_bytes, whole.inside, size)
    if part.num_servers < whole.num_servers:
        seconds = replicated_s(seconds, weight_bytes / size, whole.between, whole.num_servers)
    return float(seconds[0])


def _plan_that_fits(variant: Variant, uniform: UniformCluster) -> tuple[Plan, float] | None:
    """The first plan that fits in memory, for 1, 2, 4, ... micro-batches in flight, and A of its slowest stage."""
    most = min(variant.num_microbatches, uniform.costs.max_stages)
    for in_flight in (*(2**power for power in range((most - 1).bit_length())), most):
        server, servers = levels(variant, uniform, in_flight=in_flight)
        slowest_s = float(servers.best_s[-1, 0, -1])
        if not np.isfinite(slowest_s):
            break
        stages = list(_stages(server, servers))
        groups = [UniformGroup(replicas=stage.num_components) for stage in stages]
        plan = uniform.plan(variant, [stage.stop for stage in stages], groups, opens=[stage.opens for stage in stages])
        if plan is not None:
            return plan, slowest_s
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Layers on consecutive components of one level: devices of a server, or servers."""

    start: int
    stop: int
    num_components: int
    opens: bool = False
    """For devices: whether they are on another server than those of the segment before."""


def _stages(server: "NetworkLevel", servers: "NetworkLevel") -> Iterator[Segment]:
    """The stages of the best pipeline in order, on devices."""
    for outer in servers.segments(0, server.best_s.shape[-1] - 1):
        if outer.num_components > 1:
            yield replace(outer, num_components=outer.num_components * (len(server.best_s) - 1), opens=True)
            continue
        for inner in server.segments(outer.start, outer.stop):
            yield replace(inner, opens=inner.start == outer.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """The recursion for components of one level, solved."""

    whole_s: Mapping[int, Floats]
    """Seconds of layers [i, j) uncut, by number of components, shape (L + 1, L + 1); infinite where not allowed."""
    last_s: Mapping[int, Floats]
    """The same for the segment after a cut: T, or the longer of the transfers at its ends."""
    can_span: Callable[[int, int], bool]
    """Whether one segment can take the components [first, last)."""
    best_s: Floats
    """A of layers [i, j) on at most m components, shape (most + 1, starts, L + 1)."""

    def segments(self, start: int, stop: int) -> list[Segment]:
        """The best way to divide layers [start, stop) over all components, in order."""
        segments, most = list[Segment](), len(self.best_s) - 1
        while stop > start:
            most = int(np.argmax(self.best_s[:, start, stop] == self.best_s[most, start, stop]))
            cut, number = self._last_segment(start, stop, most)
            segments.append(Segment(start=cut, stop=stop, num_components=number))
            stop, most = cut, most - number
        return segments[::-1]

    def _last_segment(self, start: int, stop: int, most: int) -> tuple[int, int]:
        """First layer and number of components of the last segment, if all `most` components are needed."""
        best_s = self.best_s[most, start, stop]
        for number, last_s in self.last_s.items():
            if number > most or not self.can_span(most - number, most):
                continue
            # The table was filled by min and max alone, so the value is attained exactly.
            if self.whole_s[number][start, stop] == best_s:
                return start, number
            before_s = self.best_s[most - number, start]
            cuts = np.flatnonzero(np.maximum(before_s, last_s[:, stop]) == best_s)
            if len(cuts):
                return int(cuts[0]), number
        raise AssertionError("no segment attains the best value")


def solved_level(
    whole_s: Mapping[int, Floats],
    last_s: Mapping[int, Floats],
    most: int,
    *,
    starts: int,
    num_layers: int,
    can_span: Callable[[int, int], bool] = lambda first, last: True,
) -> NetworkLevel:
    """A of all layers [i, j) with i below `starts`, on up to `most` components; see :class:`NetworkLevel`."""
    best_s = np.full((most + 1, starts, num_layers + 1), np.inf)
    for used in range(1, most + 1):
        table_s = best_s[used]
        table_s[:] = best_s[used - 1]
        for number, segment_s in last_s.items():
            if number <= used and can_span(used - number, used):
                np.minimum(table_s, whole_s[number][:starts], out=table_s)
                _cut_once_more(table_s, best_s[used - number], segment_s)
    return NetworkLevel(whole_s=whole_s, last_s=last_s, can_span=can_span, best_s=best_s)


def _cut_once_more(table_s: Floats, before_s: Floats, last_s: Floats) -> None:
    """Lower `table_s` to the best of layers [i, s) as before and one segment [s, j), for every cut s."""
    for cut in range(1, len(last_s) - 1):
        front_s = before_s[:cut, cut]
        if np.isfinite(front_s).any():
            ends_s = table_s[:cut, cut + 1 :]
            np.minimum(ends_s, np.maximum.outer(front_s, last_s[cut, cut + 1 :]), out=ends_s)


def levels(variant: Variant, uniform: UniformCluster, *, in_flight: int) -> tuple[NetworkLevel, NetworkLevel]:
    """The levels of devices and of servers, for stages that fit with so many micro-batches in flight."""
    problem, size = uniform.costs.problem, uniform.devices_per_server
    num_layers = problem.model.num_layers
    weight_bytes = interval_sums(held_weight_bytes(problem.model))
    message_bytes = variant.micro_batch * problem.model.boundary_bytes()
    inner_s = _compute_s(variant, uniform, in_flight=in_flight)
    within_s = {
        number: replicated_s(seconds, weight_bytes, uniform.inside, min(number, size))
        for number, seconds in inner_s.items()
    }
    inside_s = {number: seconds for number, seconds in within_s.items() if number <= size}
    inner_cut_s = _after_a_cut(inside_s, uniform.inside, message_bytes)
    server = solved_level(inside_s, inner_cut_s, size, starts=num_layers, num_layers=num_layers)
    one_s = np.vstack([server.best_s[-1], np.full(len(message_bytes), np.inf)])
    each_s = {1: one_s} | {number // size: seconds for number, seconds in within_s.items() if number > size}
    whole_s, cut_s = (
        {number: replicated_s(each_s[number], summed, uniform.between, number) for number in each_s}
        for summed in (weight_bytes / size, weight_bytes)
    )
    servers = solved_level(
        whole_s,
        _after_a_cut(cut_s, uniform.between, message_bytes),
        uniform.num_servers,
        starts=1,
        num_layers=num_layers,
        can_span=uniform.are_alike,
    )
    return server, servers


def replicated_s(inner_s: Floats, weight_bytes: Floats, link: Link, num_replicas: int) -> Floats:
    """1/m ( inner + 4 (m - 1)/m |w| / bandwidth ), elementwise."""
    sync_s = 4 * (num_replicas - 1) / num_replicas * weight_bytes / link.large_message_bytes_per_s
    return (inner_s + sync_s) / num_replicas


def _after_a_cut(segments_s: Mapping[int, Floats], link: Link, message_bytes: Floats) -> dict[int, Floats]:
    """The longer of a segment and its transfers over both boundaries, there and back, from all components."""
    found = dict[int, Floats]()
    for number, seconds in segments_s.items():
        transfer_s = 2 * message_bytes / (link.large_message_bytes_per_s * number)
        found[number] = np.maximum(seconds, np.maximum.outer(transfer_s, transfer_s))
    return found


def _compute_s(variant: Variant, uniform: UniformCluster, *, in_flight: int) -> dict[int, Floats]:
    """Forward and backward of a whole micro-batch on one device, by the number of replicas with which stages must fit.

    Recomputation is included where stages would not fit otherwise; infinite where they do not fit at all.
    """
    inside = np.triu_indices(uniform.costs.problem.model.num_layers + 1, 1)
    single = uniform.intervals(variant, UniformGroup())
    tables = dict[int, Floats]()
    for number in uniform.replicas(variant.micro_batch):
        stages = uniform.intervals(variant, UniformGroup(replicas=number)).fitting(in_flight)
        table_s, fits = np.full_like(stages.forward_s, np.inf), np.isfinite(stages.forward_s)
        for mode, costs in single.modes:
            chosen = (fits & (stages.recompute == mode))[inside]
            table_s[inside[0][chosen], inside[1][chosen]] = (costs.forward_s + costs.backward_s)[chosen]
        tables[number] = table_s
    return tables
