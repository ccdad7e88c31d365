"""How long some of the messages of a plan keep a link busy: activations alone, and those that cross with gradients.

While activations still come, one by one from the stages before, the first gradients wait for the same link. Of a link
with the activations of boundary p and the gradients of boundary q, these are activations i + 1 .. M and gradients 1 ..
j, with i and j where they begin to wait (docs/bounds.md, "Crossing flows").
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import Chains


def one_way_rows(costs: PlanCosts, chains: Chains, home_s: Floats) -> Iterator[tuple[str, float]]:
    """Links, and rows of the activations that they carry over all boundaries from any one on up to any other."""
    ready_s, after_s = chains.activations_ready, _after_activations_s(chains, home_s)
    loaded_s: dict[str, float] = defaultdict(lambda: -np.inf)
    for boundary, links in enumerate(costs.forward_links):
        for link in set(links):
            loaded_s[link] = max(loaded_s[link], ready_s[boundary])
            loaded_s[link] += costs.variant.num_microbatches * float(costs.transfer_s[boundary])
            yield link, loaded_s[link] + after_s[boundary]


def crossing_rows(costs: PlanCosts, chains: Chains, home_s: Floats) -> Iterator[tuple[str, float]]:
    """Links, and the largest row of activations and gradients that cross there, for any two of their boundaries."""
    links, outward, homeward = _pairs(costs)
    if not links:
        return
    micro_batches, transfer_s = costs.variant.num_microbatches, costs.transfer_s
    messages_s = np.zeros(costs.num_stages)
    messages_s[1:] = np.maximum.accumulate(transfer_s)
    slow_forward_s = np.maximum(np.maximum.accumulate(costs.forward_s), messages_s)[outward, None]
    slow_backward_s = np.maximum(np.maximum.accumulate(costs.backward_s), messages_s)[homeward, None]
    # The first activation alone and the first gradient; what follows the last activation and the last gradient.
    ready_s = chains.activations_ready[outward, None]
    waiting_s = chains.gradients_ready[homeward, None]
    after_s = _after_activations_s(chains, home_s)[outward, None]
    home_alone_s = (chains.backward_before[1:] - transfer_s + chains.tail_s[0])[homeward, None]
    before = _around(waiting_s - ready_s, slow_forward_s, micro_batches - 1)
    left = _around(after_s - home_alone_s, slow_backward_s, micro_batches)
    first_s = np.minimum(waiting_s, ready_s + before * slow_forward_s)
    first_s += (micro_batches - before) * transfer_s[outward, None]
    last_s = np.minimum(after_s, home_alone_s + left * slow_backward_s)
    last_s += (micro_batches - left) * transfer_s[homeward, None]
    yield from zip(links, (first_s.max(axis=1) + last_s.max(axis=1)).tolist(), strict=True)


def _pairs(costs: PlanCosts) -> tuple[list[str], Ints, Ints]:
    """Links, with two boundaries whose activations and gradients they carry and whose messages take time."""
    homeward: dict[str, list[int]] = defaultdict(list)
    slow = np.flatnonzero(costs.transfer_s > 0).tolist()
    for boundary in slow:
        for link in set(costs.backward_links[boundary]):
            homeward[link].append(boundary)
    found = [
        (link, boundary, other)
        for boundary in slow
        for link in set(costs.forward_links[boundary])
        for other in homeward[link]
    ]
    return [link for link, _, _ in found], *np.array([pair for _, *pair in found], dtype=np.int64).reshape(-1, 2).T


def _after_activations_s(chains: Chains, home_s: Floats) -> Floats:
    """What follows an activation over each boundary, to the last stage, back to any stage and home; shape (S - 1,)."""
    longest_s: Floats = (chains.total - chains.backward_before + home_s).max() - chains.forward_before[1:]
    return longest_s


def _around(seconds: Floats, slow_s: Floats, most: int) -> Ints:
    """None, all, and the numbers of waits of `slow_s` up to and beyond the seconds, up to `most`; shape (pairs, 4)."""
    up_to = np.clip(np.divide(seconds, slow_s, out=np.zeros_like(seconds), where=slow_s > 0), 0, most).astype(np.int64)
    return np.hstack((np.zeros_like(up_to), up_to, np.minimum(up_to + 1, most), np.full_like(up_to, most)))
