"""The stage network of one variant: nodes, stage arcs and transfer arcs.

Nodes are (boundary j, stages still to come q, exit) after a stage and (j, q, entry) before one.
Stage arcs lead from an entry at j to an exit at j' > j and lower q by one; transfer arcs lead
from an exit to an entry at the same j and may open hosts. A path from source to sink that opens
no more hosts of a class than there are is a plan, and every plan of the search space is one.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.core.cluster import Cluster
from planner.core.placement import Placement
from planner.core.problem import Variant
from planner.core.schedule import warmup_depth
from planner.cost.cost_model import CostModel
from planner.cost.plan_costs import Ints
from planner.network.arcs import Arcs, Bools, Numbering, join_arcs, stage_arcs, transfer_arcs
from planner.network.graph import LayeredGraph
from planner.network.places import Places, build_places


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNetwork:
    """The network of one variant of a problem."""

    variant: Variant
    cluster: Cluster
    num_layers: int
    depths: Ints
    """Warm-up depth by position, shape (max_stages + 2,); entry 0 is unused."""
    places: Places
    arcs: Arcs
    graph: LayeredGraph

    def restricted(self, chosen: Bools) -> tuple["StageNetwork", Ints]:
        """The same network with the chosen arcs only, less those then on no path, and which arcs are kept."""
        kept = np.flatnonzero(chosen)
        graph = LayeredGraph(tail=self.arcs.tail[kept], head=self.arcs.head[kept], level=self.graph.level)
        alive = np.isfinite(graph.through(np.zeros(len(kept))))
        if not alive.all():
            kept = kept[alive]
            graph = LayeredGraph(tail=self.arcs.tail[kept], head=self.arcs.head[kept], level=self.graph.level)
        return replace(self, arcs=self.arcs.take(kept), graph=graph), kept

    def placement(self, arc: int) -> Placement:
        """Where the stage of a stage arc runs."""
        return self.places.options[int(self.arcs.option[arc])].placement


def build_network(costs: CostModel, variant: Variant, *, longest_s: float = np.inf) -> StageNetwork:
    """All arcs whose stage fits in memory and whose M (F + B) does not exceed `longest_s`."""
    problem = costs.problem
    places = build_places(problem.cluster, problem.job, micro_batch=variant.micro_batch)
    numbering = Numbering(
        num_layers=problem.model.num_layers,
        max_stages=problem.max_stages,
        num_exits=len(places.exits),
        num_entries=len(places.entries),
    )
    depths = depths_by_position(variant, problem.max_stages)
    arcs = join_arcs(
        [
            *stage_arcs(costs, variant, places, numbering, depths, longest_s),
            *transfer_arcs(costs, variant, places, numbering),
        ]
    )
    level = numbering.levels()
    network = StageNetwork(
        variant=variant,
        cluster=problem.cluster,
        num_layers=problem.model.num_layers,
        depths=depths,
        places=places,
        arcs=arcs,
        graph=LayeredGraph(tail=arcs.tail, head=arcs.head, level=level),
    )
    return network.restricted(np.ones(len(arcs), dtype=bool))[0]


def depths_by_position(variant: Variant, max_stages: int) -> Ints:
    """Warm-up depth k of every position q, shape (max_stages + 2,); entry 0 is unused."""
    depths = [warmup_depth(variant.schedule, max(1, q), variant.num_microbatches) for q in range(max_stages + 2)]
    return np.array(depths)
