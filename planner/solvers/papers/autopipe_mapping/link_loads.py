"""How long each link is busy in one iteration, and the bounds of the iteration time that follow.

A flow is all messages of one boundary in one direction, the gradient all-reduce of a stage, or the sum of the gradients
of tied weights. With J the incidence matrix of links and flows and d the seconds of the flows, the loads are J d.

A link serves one task at a time. So T is at least the earliest time at which any of its tasks can be ready, plus the
load, plus what must follow whichever task is served last. docs/papers/autopipe-h.md states the rows and why they hold
for plans whose micro-batches are not halved. The simulator does not sum the gradients of tied weights: a row that
includes them does not bound the simulated time, but says what a training run has to carry.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.core.plan import Plan
from stagecut.planner.cost.collectives import ring_all_reduce_s
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between, route_between
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import chains_of
from stagecut.planner.simulator.routes import flow_routes


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWeights:
    """Weights that two layers hold and whose gradients are summed once per iteration, in a ring of two."""

    owner: int
    """The first layer with at least as many bytes of its own: profiles do not name it."""
    copy: int
    gradient_bytes: float

    def sum_s(self, link: Link) -> float:
        """Seconds of the sum over a link."""
        return float(ring_all_reduce_s(np.array([self.gradient_bytes]), 2, link)[0])


class TiedSum(NamedTuple):
    """The sum of the gradients of tied weights between two stages."""

    seconds: float
    route: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoads:
    """Flows of the first pipeline, and how long they keep each link busy in one iteration."""

    names: tuple[str, ...]
    """Links in order of first use."""
    messages: Bools
    """Which activations, then gradients, use each link, shape (links, 2 S - 2)."""
    all_reduces: Bools
    """Shape (links, S)."""
    messages_s: Floats
    """Shape (links,), as are the others."""
    all_reduces_s: Floats
    tied_s: Floats

    @property
    def total_s(self) -> Floats:
        """Load of all flows together, shape (links,)."""
        return self.messages_s + self.all_reduces_s + self.tied_s


def tied_weights(costs: CostModel) -> tuple[TiedWeights, ...]:
    """The pairs of layers that hold the same weights."""
    model, optimizer = costs.problem.model, costs.problem.job.optimizer
    own_bytes = [layer.params_bytes for layer in model.layers]
    pairs = []
    for copy, layer in enumerate(model.layers):
        shared_bytes = layer.shared_params_bytes
        owner = next((index for index, size in enumerate(own_bytes) if size >= shared_bytes), copy)
        if shared_bytes > 0 and owner != copy:
            gradient_bytes = shared_bytes / model.precision.num_bytes * optimizer.gradient_bytes
            pairs.append(TiedWeights(owner=owner, copy=copy, gradient_bytes=gradient_bytes))
    return tuple(pairs)


def tied_sums(costs: CostModel, plan: Plan) -> tuple[TiedSum, ...]:
    """The sums between stages of a plan, with the costs of its share; one per pair of layers whatever the replicas."""
    stops = np.array([stage.stop for stage in plan.stages])
    sums = []
    for tied in tied_weights(costs):
        owner, copy = (plan.stages[np.searchsorted(stops, layer, side="right")] for layer in (tied.owner, tied.copy))
        if owner != copy:
            ends = costs.device_group(owner), costs.device_group(copy)
            there, back = route_between(costs.cluster, *ends), route_between(costs.cluster, *reversed(ends))
            seconds = tied.sum_s(link_between(costs.cluster, *ends))
            sums.append(TiedSum(seconds=seconds, route=tuple(dict.fromkeys((*there, *back)))))
    return tuple(sums)


def link_loads(costs: PlanCosts, tied: tuple[TiedSum, ...] = ()) -> LinkLoads:
    """Loads of every named link."""
    routes = (*flow_routes(costs), *(each.route for each in tied))
    names = tuple(dict.fromkeys(name for route in routes for name in route))
    row = {name: index for index, name in enumerate(names)}
    incidence = np.zeros((len(names), len(routes)), dtype=bool)
    for flow, route in enumerate(routes):
        incidence[[row[name] for name in route], flow] = True
    boundaries = costs.num_stages - 1
    messages_s = costs.variant.num_microbatches * costs.transfer_s
    ends = np.cumsum((boundaries, boundaries, costs.num_stages))
    activations, gradients, all_reduces, sums = np.split(incidence, ends, axis=1)
    return LinkLoads(
        names=names,
        messages=incidence[:, : 2 * boundaries],
        all_reduces=all_reduces,
        messages_s=activations @ messages_s + gradients @ messages_s,
        all_reduces_s=all_reduces @ costs.sync_s,
        tied_s=sums @ np.array([each.seconds for each in tied]),
    )


def load_rows(costs: PlanCosts, tied: tuple[TiedSum, ...] = ()) -> dict[str, Floats]:
    """Values of the rows of this module by family; without `tied` they bound the simulated time."""
    loads, chains, transfer_s = link_loads(costs, tied), chains_of(costs), costs.transfer_s
    outward_s = chains.forward_before[:-1] + costs.forward_s[:-1]
    homeward_s = chains.total - chains.backward_before[1:]
    ready_s = np.concatenate((outward_s, homeward_s))
    left_s = chains.total - ready_s - np.tile(transfer_s, 2) + chains.tail_s[0]
    used = loads.messages.any(axis=1)
    first_message_s = _least(loads.messages, ready_s)
    first_s = np.minimum(first_message_s, _least(loads.all_reduces, chains.total - chains.backward_before))
    done_s = chains.forward_before + costs.variant.num_microbatches * (costs.forward_s + costs.backward_s)
    queued_s = np.cumsum(loads.all_reduces * costs.sync_s, axis=1)
    following_s = np.maximum(_least(loads.messages, left_s), loads.tied_s)
    return {
        "messages": (first_message_s + loads.messages_s + following_s)[used],
        "all flows": (first_s + loads.total_s)[used],
        "all-reduces": (done_s + queued_s)[loads.all_reduces],
    }


def load_bound(costs: PlanCosts, tied: tuple[TiedSum, ...] = ()) -> float:
    """The largest of these rows; 0 where no link is named."""
    return max((float(row.max()) for row in load_rows(costs, tied).values() if len(row)), default=0.0)


def _least(incidence: Bools, values_s: Floats) -> Floats:
    """Minimum over the flows of each link; infinite for a link without any."""
    least_s: Floats = np.where(incidence, values_s, np.inf).min(axis=1, initial=np.inf)
    return least_s
