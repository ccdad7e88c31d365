"""Lower bounds on the simulated iteration time of an interleaved plan.

With D device groups and v chunks, S = D v stages, d = s mod D the device group of stage s, PF, PB and
total as in :mod:`stagecut.planner.simulator.bounds`; derivations: docs/bounds.md. Per device group

    work = M (sum of F + B over its stages),    g = sum of all-reduces and steps of its stages,
    arrive = max over its chunks c of PF_s - D (sum of F of its chunks before c),
    home   = max over its chunks c of PB_s - D (sum of B of its chunks before c),

and per stage, by the list of its device group,

    before = work before B_s(1),    upto = work up to F_s(M), itself included,
    first = max over e >= s of max(total, arrive_e + before_e + PB_e + B_e) - PB_s - B_s.

- busy:  arrive + work + home + g_0
- sync:  arrive + work + g
- fill:  first + work - before + PB_d + g_0
- drain: first + work - before + g
- late:  PF_e + F_e + max over s <= e of (start + upto - PF - F)_s + work_e - upto_e + max(g_e, home_e + g_0),
  with start the largest term of arrive over chunks whose first forward, and first - before of chunks whose
  first backward, stands at or before F_s(M) on the list
- link:  total + (M - 1) c_s + g_0
- queue, per link that several flows name: first of its messages ready + all of them + the least
  work that follows the last + g_0.
- home: the ends of the last backwards in these rows, and the way home from there through the queues of all-reduces and
  last gradients, see :mod:`stagecut.planner.simulator.interleaved_ways_home`.
"""

import numpy as np

from stagecut.planner.core.interleaving import Interleaving
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import Chains, chains_of
from stagecut.planner.simulator.interleaved_ways_home import earliest_end_s, rounds_s


def interleaved_rows(costs: PlanCosts, order: Interleaving) -> dict[str, Floats]:
    """Rows per device group (busy, sync), stage (fill, drain, late), boundary (link), shared link (queue), or plan."""
    chains, shape = chains_of(costs), (order.chunks, order.num_devices)
    forward_s, backward_s = costs.forward_s.reshape(shape), costs.backward_s.reshape(shape)
    tail_s = chains.tail_s.reshape(shape).sum(axis=0)
    work_s = order.num_microbatches * (forward_s + backward_s).sum(axis=0)
    arrivals_s = chains.forward_before.reshape(shape) - rounds_s(forward_s)
    arrive_s = arrivals_s.max(axis=0)
    home_s = (chains.backward_before.reshape(shape) - rounds_s(backward_s)).max(axis=0)
    before_s = _work(order.before_first_backward, forward_s, backward_s)
    upto_s = _work(order.until_last_forward, forward_s, backward_s)
    return_s = chains.backward_before.reshape(shape) + backward_s
    keys_s = np.maximum(chains.total, arrive_s + before_s + return_s)
    # first takes its maximum over later stages, late its own over earlier ones: running maxima in order of stages.
    first_s = np.maximum.accumulate(keys_s.ravel()[::-1])[::-1].reshape(shape) - return_s
    until_end_s = first_s - before_s + work_s
    start_s = _latest_start(order, arrivals_s, first_s - before_s)
    reach_s = chains.forward_before.reshape(shape) + forward_s
    last_s = reach_s + np.maximum.accumulate((start_s + upto_s - reach_s).ravel()).reshape(shape)
    end_s = np.maximum(arrive_s + work_s, last_s + work_s - upto_s).max(axis=0)
    # The first backward of a later chunk precedes the last one of this chunk.
    ends_s = np.maximum(end_s, np.maximum.accumulate(until_end_s[::-1], axis=0)[::-1])
    last_backward_s = ends_s - rounds_s(backward_s)
    return {
        "busy": arrive_s + work_s + home_s + tail_s[0],
        "sync": arrive_s + work_s + tail_s,
        "fill": (until_end_s + chains.backward_before[: order.num_devices]).ravel() + tail_s[0],
        "drain": (until_end_s + tail_s).ravel(),
        "late": (last_s + work_s - upto_s + np.maximum(tail_s, home_s + tail_s[0])).ravel(),
        "link": chains.total + (order.num_microbatches - 1) * costs.transfer_s + tail_s[0],
        "queue": _queues(costs, chains) + tail_s[0],
        "home": np.array([earliest_end_s(costs, last_backward_s.ravel())]),
    }


def _work(counts: tuple[Ints, Ints], forward_s: Floats, backward_s: Floats) -> Floats:
    """Seconds of these numbers of forwards and backwards of each chunk, shape (v, D)."""
    forwards, backwards = counts
    seconds: Floats = np.einsum("cdk,kd->cd", forwards, forward_s) + np.einsum("cdk,kd->cd", backwards, backward_s)
    return seconds


def _latest_start(order: Interleaving, forward_start_s: Floats, backward_start_s: Floats) -> Floats:
    """Latest known start of a device group's list, for the last forward of each stage, shape (v, D).

    The first forward and the first backward of each stage imply a start of the list each, shape (v, D).
    """
    forwards, backwards = (counts.sum(axis=-1) for counts in order.until_last_forward)
    first_forward = order.num_devices * np.arange(order.chunks)[:, None]
    first_backward = order.before_first_backward[1].sum(axis=-1)
    starts_s = np.concatenate((forward_start_s, backward_start_s))
    precedes = np.concatenate((first_forward < forwards[:, None, :], first_backward < backwards[:, None, :]), axis=1)
    latest: Floats = np.where(precedes, starts_s, -np.inf).max(axis=1)
    return latest


def _queues(costs: PlanCosts, chains: Chains) -> Floats:
    """First message ready + all messages + least work after one, of every link that several flows name."""
    ready_s = np.concatenate(
        (chains.forward_before[:-1] + costs.forward_s[:-1], chains.total - chains.backward_before[1:])
    )
    busy_s = np.tile(costs.transfer_s, 2)
    left_s = chains.total - ready_s - busy_s
    users: dict[str, list[int]] = {}
    for flow, route in enumerate((*costs.forward_links, *costs.backward_links)):
        for name in dict.fromkeys(route):
            users.setdefault(name, []).append(flow)
    num_messages = costs.variant.num_microbatches
    shared = [flows for flows in users.values() if len(flows) > 1]
    return np.array(
        [ready_s[flows].min() + num_messages * busy_s[flows].sum() + left_s[flows].min() for flows in shared]
    )
