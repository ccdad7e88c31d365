"""What each link of a mapping has to carry in one iteration, and the time that this alone takes.

Flows are the messages of one boundary in one direction, M of them with c seconds each, the gradient
all-reduces of the stages, once per iteration, and the sums of gradients of tied weights. Every flow
has a route: the fabric or the bridge of a host, or the interfaces of two hosts. With J the incidence
of links and flows and d the seconds of the flows, the loads are the product J d.

A link serves one task after another. So T is at least the earliest time at which one of its tasks
can be ready, plus the load, plus what must follow whichever is served last. With PF, PB, total and g
of :mod:`planner.simulator.bounds`:

- messages: ready PF_s + F_s for the activations over boundary s, total - PB_{s+1} for its gradients;
  what follows is the rest of that round trip without c_s, and g_0. The least of each over the flows.
  Sums of tied weights are ready later than all these, so they may stand in place of what follows.
- all flows: the same with the all-reduces, which are ready no sooner than total - PB_s; nothing is
  taken to follow. One row for each link that also carries messages.
- all-reduces: those of the stages a <= s on the link begin no sooner than stage s is done,
  PF_s + M (F_s + B_s), since B_a(M) waits for B_s(M). One row for each stage on each link.

Rules and notation are those of docs/bounds.md, for plans with whole micro-batches. The simulator
does not sum gradients of tied weights. With them a row is no bound of the simulated time any more,
but says what a training run has to carry.
"""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats
from stagecut.planner.core.plan import Plan
from stagecut.planner.cost.collectives import ring_all_reduce_s
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between, route_between
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import Chains, chains_of
from stagecut.planner.simulator.routes import flow_routes


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWeights:
    """Weights that two layers hold, whose gradients are summed once per iteration."""

    owner: int
    """The first layer with at least as many bytes of its own: profiles do not name it."""
    copy: int
    gradient_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedSum:
    """The sum of gradients of tied weights between two stages: a ring of 2."""

    seconds: float
    route: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoads:
    """Seconds that each link of the first pipeline serves in one iteration, shape (links,) each."""

    names: tuple[str, ...]
    activations_s: Floats
    gradients_s: Floats
    all_reduces_s: Floats
    tied_s: Floats

    @property
    def total_s(self) -> Floats:
        """Of all flows."""
        return self.activations_s + self.gradients_s + self.all_reduces_s + self.tied_s


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
    """What a plan has to sum between stages, one exchange per pair whatever the replicas.

    Parameters
    ----------
    costs
        Of the plan's share.
    """
    stops = np.array([stage.stop for stage in plan.stages])
    sums = []
    for pair in tied_weights(costs):
        owner, copy = (plan.stages[np.searchsorted(stops, layer, side="right")] for layer in (pair.owner, pair.copy))
        if owner == copy:
            continue
        ends = costs.hosting(owner), costs.hosting(copy)
        seconds = float(ring_all_reduce_s(np.array([pair.gradient_bytes]), 2, link_between(costs.cluster, *ends))[0])
        there, back = route_between(costs.cluster, *ends), route_between(costs.cluster, *reversed(ends))
        sums.append(TiedSum(seconds=seconds, route=tuple(dict.fromkeys((*there, *back)))))
    return tuple(sums)


def link_loads(costs: PlanCosts, tied: tuple[TiedSum, ...] = ()) -> LinkLoads:
    """Seconds that every named link serves."""
    names, incidence = _incidence(costs, tied)
    boundaries, stages = costs.num_stages - 1, costs.num_stages
    messages_s = costs.variant.num_microbatches * costs.transfer_s
    columns = np.split(incidence, np.cumsum((boundaries, boundaries, stages)), axis=1)
    flows_s = (messages_s, messages_s, costs.sync_s, np.array([each.seconds for each in tied]))
    activations, gradients, all_reduces, sums = (part @ flow_s for part, flow_s in zip(columns, flows_s, strict=True))
    return LinkLoads(
        names=names, activations_s=activations, gradients_s=gradients, all_reduces_s=all_reduces, tied_s=sums
    )


def load_rows(costs: PlanCosts, tied: tuple[TiedSum, ...] = ()) -> dict[str, Floats]:
    """Values of the rows of this module by family; see above. Bounds of the simulated time without `tied`."""
    names, incidence = _incidence(costs, tied)
    if not names:
        return {}
    chains = chains_of(costs)
    loads = link_loads(costs, tied)
    messages = incidence[:, : 2 * (costs.num_stages - 1)]
    used = messages.any(axis=1)
    ready_s, left_s = _message_times(costs, chains)
    messages_s = loads.activations_s + loads.gradients_s
    first_message_s = _least(messages, ready_s)
    all_reduces = incidence[:, len(ready_s) : len(ready_s) + costs.num_stages]
    first_s = np.minimum(first_message_s, _least(all_reduces, chains.total - chains.backward_before))
    return {
        "messages": (first_message_s + messages_s + np.maximum(_least(messages, left_s), loads.tied_s))[used],
        "all flows": (first_s + loads.total_s)[used],
        "all-reduces": _all_reduces(costs, chains, all_reduces),
    }


def load_bound(costs: PlanCosts, tied: tuple[TiedSum, ...] = ()) -> float:
    """The largest of these rows; 0 where no link is named."""
    return max((float(row.max()) for row in load_rows(costs, tied).values() if len(row)), default=0.0)


def _incidence(costs: PlanCosts, tied: tuple[TiedSum, ...]) -> tuple[tuple[str, ...], Bools]:
    """Names of the links in order of first use, and which flows each serves, shape (links, flows)."""
    routes = (*flow_routes(costs), *(each.route for each in tied))
    names = tuple(dict.fromkeys(name for route in routes for name in route))
    row = {name: index for index, name in enumerate(names)}
    incidence = np.zeros((len(names), len(routes)), dtype=bool)
    for flow, route in enumerate(routes):
        incidence[[row[name] for name in route], flow] = True
    return names, incidence


def _message_times(costs: PlanCosts, chains: Chains) -> tuple[Floats, Floats]:
    """When the first message of each flow can be ready, and what follows its last one; activations, then gradients."""
    outward_s = chains.forward_before[:-1] + costs.forward_s[:-1]
    homeward_s = chains.total - chains.backward_before[1:]
    ready_s = np.concatenate((outward_s, homeward_s))
    left_s = chains.total - ready_s - np.tile(costs.transfer_s, 2) + chains.tail_s[0]
    return ready_s, left_s


def _least(incidence: Bools, values_s: Floats) -> Floats:
    """Of the flows of each link; infinite without any."""
    least_s: Floats = np.where(incidence, values_s, np.inf).min(axis=1, initial=np.inf)
    return least_s


def _all_reduces(costs: PlanCosts, chains: Chains, incidence: Bools) -> Floats:
    """One value per stage on each link."""
    done_s = chains.forward_before + costs.variant.num_microbatches * (costs.forward_s + costs.backward_s)
    queued_s = np.cumsum(incidence * costs.sync_s, axis=1)
    rows_s: Floats = (done_s + queued_s)[incidence]
    return rows_s
