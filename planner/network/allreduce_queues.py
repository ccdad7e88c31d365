"""How gradients and all-reduces wait for each other on the links that they share, per arc of a stage network.

The all-reduces of the stages of one host share its interface, or the shared fabric of their island, and the last
gradient that leaves a stage may take the same link. They are served in the order in which they become ready, from the
last stage to the first (docs/bounds.md, the `queue` rows). Along a path, up to the node before a stage s, let

    forward = PF_s,
    home    = PF_s + the longest chain from the end of B_s(M) to the end of the iteration, less the stage's own tail,
    queue   = PF_s + the longest chain from the end of the all-reduce of s, on the link that it queues for.

Each is the largest of sums over the lengths before an arc, so the least over all paths is a bound for each of them.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import inlined
from stagecut.planner.cost.links import crosses_hosts
from stagecut.planner.network.stage_network import StageNetwork


class AllReduceQueues(NamedTuple):
    """What arcs add to lengths, and rows to the queue before them, in seconds; arrays of shape (A,).

    home after an arc = max(home + round trip, queue + `queue_to_home`, forward + `forward_to_home`),
    queue after it = max(queue + `queue_to_queue`, forward + `forward_to_queue`, home + `home_to_queue`).
    """

    queue_to_home: Floats
    forward_to_home: Floats
    queue_to_queue: Floats
    forward_to_queue: Floats
    home_to_queue: Floats
    after_busy: Floats
    """M (F + B), what halving adds, and the all-reduce; minus infinity for an arc that does not queue."""
    after_drain: Floats
    """(M - 1)(F + B) - (k - 1) F and the all-reduce, less g_0 on the first stage, which its way on includes."""
    after_late: Floats
    """F + k B and the all-reduce."""

    def take(self, kept: Ints) -> "AllReduceQueues":
        """The columns of the `kept` arcs."""
        return AllReduceQueues(*(column[kept] for column in self))


NO_QUEUES = AllReduceQueues(*(np.empty(0) for _ in AllReduceQueues._fields))


class Lengths(NamedTuple):
    """Lengths of a path up to a node."""

    home: float
    forward: float
    queue: float


@inlined
def home_of_queue(queues: AllReduceQueues, arc: int, before: Lengths) -> float:
    """The home length after an arc, as far as it comes from an all-reduce."""
    return float(max(before.queue + queues.queue_to_home[arc], before.forward + queues.forward_to_home[arc]))


@inlined
def queue_after(queues: AllReduceQueues, arc: int, before: Lengths) -> float:
    """The queue length after an arc."""
    return float(
        max(
            before.queue + queues.queue_to_queue[arc],
            before.forward + queues.forward_to_queue[arc],
            before.home + queues.home_to_queue[arc],
        )
    )


def build_queues(network: StageNetwork) -> AllReduceQueues:
    """The columns of a network."""
    arcs, num_microbatches = network.arcs, network.variant.num_microbatches
    shared = _shared(network)[np.maximum(0, arcs.option)]
    first, sends = _entries(network)
    is_stage = arcs.is_stage
    entry = np.where(is_stage, _option_entries(network)[np.maximum(0, arcs.option)], arcs.entry).astype(np.int64)
    first, sends = first[entry], sends[entry] & (arcs.start > 0)
    queues = is_stage & (arcs.sync_s > 0) & shared
    # The first stage of a queue is served last; its optimizer step follows the whole queue.
    update_s = np.where(first, arcs.tail_s - arcs.sync_s, 0.0)
    served_s = np.where(queues, arcs.sync_s + update_s, 0.0)
    work_s, way_s = arcs.forward_s + arcs.backward_s, arcs.first_s + arcs.backward_s
    # A gradient is served before the all-reduce of its stage. Where a backward takes no time nothing is known of the
    # order, and what the later stages wait for is left behind; so it is where a queue begins.
    passes_s = arcs.first_s + np.where(is_stage, served_s, np.where(sends, arcs.transfer_s, 0.0))
    restarts = np.where(is_stage, arcs.backward_s == 0, first)
    later_s = (num_microbatches - 1) * work_s - (network.largest_depth - 1) * arcs.forward_s
    turn_s = arcs.forward_s + network.least_depth * arcs.backward_s
    first_tail_s = np.where(arcs.start == 0, arcs.tail_s, 0.0)

    def where(chosen: Bools, seconds: Floats) -> Floats:
        found: Floats = np.where(chosen, seconds, -np.inf)
        return found

    return AllReduceQueues(
        queue_to_home=where(queues, way_s + served_s),
        forward_to_home=where(is_stage, way_s + arcs.tail_s),
        queue_to_queue=where(~restarts, passes_s),
        forward_to_queue=where(restarts, np.where(is_stage, arcs.first_s, passes_s)),
        home_to_queue=where(is_stage & ~restarts & sends, arcs.first_s),
        after_busy=where(queues, num_microbatches * work_s + arcs.halving_s + served_s),
        after_drain=where(queues, later_s - first_tail_s + served_s),
        after_late=where(queues, turn_s + served_s),
    )


def _shared(network: StageNetwork) -> Bools:
    """Per option: whether the all-reduce of its stage takes shared links."""
    servers, share = network.cluster.servers, network.costs.share
    return np.array(
        [
            crosses_hosts(place, share) or servers[place.server_class].islands[place.island].shared
            for place in network.placements
        ],
        dtype=bool,
    )


def _option_entries(network: StageNetwork) -> Ints:
    return np.array([option.entry for option in network.host_states.options], dtype=np.int64)


def _entries(network: StageNetwork) -> tuple[Bools, Bools]:
    """Per entry: whether its stage is the first in its queue, and whether its gradient takes the links of that queue.

    The gradient takes the interface between hosts, the fabric inside an island, and the bridge between two of them.
    """
    first, sends = [], []
    for entry in network.host_states.entries:
        at_interface = entry.opened_hosts > 1 or network.costs.share.host_split(entry.server_class) > 1
        same_island = entry.before is not None and entry.before.island == entry.island
        first.append(entry.before is None or not (at_interface or same_island))
        sends.append(at_interface if entry.before is None else same_island and not at_interface)
    return np.array(first, dtype=bool), np.array(sends, dtype=bool)
