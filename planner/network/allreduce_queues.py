"""All-reduces that queue for the same links, per arc of a stage network.

The all-reduces of the stages of one host share its interface, or the shared fabric of their island,
and are served one after another. So a stage's share of the `queue` rows of
:mod:`stagecut.planner.simulator.bounds` adds up along the path for as long as it stays on the host or island.
"""

from dataclasses import dataclass, fields

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.cost.links import crosses_hosts
from stagecut.planner.network.host_states import HostEntry
from stagecut.planner.network.stage_network import StageNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceQueues:
    """Columns over the arcs, shape (A,) each."""

    queued_s: Floats
    """What the arc adds to the queue: its all-reduce and, for the first stage there, its optimizer step."""
    restarts: Bools
    """Whether the queue of the arcs before is left."""
    after_busy_s: Floats
    """M (F + B) and what the arc adds; minus infinity for an arc that does not queue."""
    after_drain_s: Floats
    """(M - 1)(F + B) - (k - 1) F and what the arc adds, less g_0 on the first stage, which its way on includes."""
    after_late_s: Floats
    """F + k B and what the arc adds."""

    def take(self, kept: Ints) -> "AllReduceQueues":
        """The columns of the `kept` arcs."""
        return AllReduceQueues(**{field.name: getattr(self, field.name)[kept] for field in fields(self)})


def build_queues(network: StageNetwork) -> AllReduceQueues | None:
    """The columns of a network; None if no all-reduce ever queues."""
    arcs, num_microbatches = network.arcs, network.variant.num_microbatches
    shared, first = _options(network)
    queues = arcs.is_stage & (arcs.sync_s > 0) & shared[arcs.option]
    if not queues.any():
        return None
    # The queue's first stage is served last, as its backwards end last; its optimizer step follows the whole queue.
    update_s = np.where(first[arcs.option] & (arcs.backward_s > 0), arcs.tail_s - arcs.sync_s, 0.0)
    queued_s = np.where(queues, arcs.sync_s + update_s, 0.0)
    work_s = arcs.forward_s + arcs.backward_s
    first_tail_s = np.where(arcs.start == 0, arcs.tail_s, 0.0)
    later_s = (num_microbatches - 1) * work_s - (arcs.largest_depth - 1) * arcs.forward_s
    turn_s = arcs.forward_s + arcs.least_depth * arcs.backward_s
    return AllReduceQueues(
        queued_s=queued_s,
        restarts=~arcs.is_stage & _restarts(network),
        after_busy_s=np.where(queues, num_microbatches * work_s + queued_s, -np.inf),
        after_drain_s=np.where(queues, later_s - first_tail_s + queued_s, -np.inf),
        after_late_s=np.where(queues, turn_s + queued_s, -np.inf),
    )


def _options(network: StageNetwork) -> tuple[Bools, Bools]:
    """Per option: whether its all-reduce takes shared links, and whether its stage is the first in that queue."""
    cluster, share, states = network.cluster, network.costs.share, network.host_states
    shared, first = [], []
    for option in states.options:
        placement, entry = option.placement, states.entries[option.entry]
        crosses = crosses_hosts(placement, share)
        shared.append(crosses or cluster.servers[placement.server_class].islands[placement.island].shared)
        first.append(_is_new_queue(entry, whole_host=crosses))
    return np.array(shared, dtype=bool), np.array(first, dtype=bool)


def _restarts(network: StageNetwork) -> Bools:
    """Per arc, for transfers: whether the next stage is in another queue than the one before."""
    entries, share = network.host_states.entries, network.costs.share
    new = [_is_new_queue(entry, whole_host=share.host_split(entry.server_class) > 1) for entry in entries]
    restarts: Bools = np.array(new, dtype=bool)[np.maximum(0, network.arcs.entry)]
    return restarts


def _is_new_queue(entry: HostEntry, *, whole_host: bool) -> bool:
    """Whether no stage before is in the queue that an entry leads to."""
    if entry.before is None:
        return True
    return not whole_host and entry.before.island != entry.island
