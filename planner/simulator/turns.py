"""Where a pipeline turns from forwards to backwards and back: bounds on the end of the last backward of each stage.

With PF, PB, F, B, c, k, M as in :mod:`stagecut.planner.simulator.bounds` and W = F + B; derivations: docs/bounds.md.

- first_s, the end of B_s(1): the largest, over stages e >= s, of PF_e + F_e + passage_e(k_e - 1) + B_e + PB_e - PB_s:
  k_e forwards of e come before B_e(1). passage_e(n), by how much n micro-batches delay the next one up to there, is n x
  with x the slowest forward of a stage up to e or message over a boundary before it; or, where several boundaries
  before e share a link, n (sum of their c) less the F, and c on other links, from the first of them to the last.
- loops: from B_s(1) to B_s(M - k_s) there are m = M - k_s - 1 micro-batches, of which a = k_s - k_e + 1 take the way to
  stage e and back, all W and 2 c of the stages from s to e; what does not fill such loops takes other ones.
- last_e, the end of F_e(M): PF_e + F_e + passage_e(M - 1), or from F_s(M), which follows B_s(M - k_s), the way on to e.
- end_s, the end of B_s(M): PF_s + M W_s, first_s and the work then left, or the way back of k_e gradients from a stage
  e >= s where F_e(M) has ended: last_e + B_e + PB_e - PB_s + (k_e - 1) y with y the slowest backward of a stage from s
  to e or message between them.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import Chains


def first_backwards(costs: PlanCosts, chains: Chains) -> Floats:
    """Earliest end of the first backward of each stage, shape (S,)."""
    turn_s = chains.forward_before + chains.first_s + costs.backward_s + chains.backward_before
    turn_s = turn_s + _passage(costs, chains, costs.warmup_depth - 1)
    first_s: Floats = np.maximum.accumulate(turn_s[::-1])[::-1] - chains.backward_before
    return first_s


def last_forwards(costs: PlanCosts, chains: Chains) -> Floats:
    """Earliest end of the last forward of each stage, shape (S,)."""
    micro_batches, depth = costs.variant.num_microbatches, costs.warmup_depth
    ahead = np.full(costs.num_stages, micro_batches - 1)
    line_s = chains.forward_before + chains.first_s + _passage(costs, chains, ahead)
    loops_s = [_loops(costs, int(stage)) for stage in np.flatnonzero(micro_batches > depth)]
    start_s = np.full(costs.num_stages, -np.inf)
    start_s[micro_batches > depth] = loops_s
    start_s += first_backwards(costs, chains) - chains.whole_before
    after_loops_s = chains.whole_before + costs.forward_s + np.maximum.accumulate(start_s)
    last_s: Floats = np.maximum(line_s, after_loops_s)
    return last_s


def last_backwards(costs: PlanCosts, chains: Chains) -> Floats:
    """Earliest end of the last backward of each stage, shape (S,)."""
    micro_batches, depth = costs.variant.num_microbatches, costs.warmup_depth
    work_s = costs.forward_s + costs.backward_s
    later_s = (micro_batches - 1) * work_s - (depth - 1) * costs.forward_s
    own_s = chains.forward_before + micro_batches * work_s + chains.halving_s
    end_s = np.maximum(own_s, first_backwards(costs, chains) + later_s)
    arrived_s, slowest_s = last_forwards(costs, chains) + costs.backward_s, costs.backward_s.copy()
    # Stage by stage, the gradients of all later stages come one stage further; row `far` stands for e = s + far.
    for far in range(costs.num_stages):
        if far:
            arrived_s = arrived_s[1:] + costs.transfer_s[: len(arrived_s) - 1] + costs.backward_s[: len(arrived_s) - 1]
            near_s = np.maximum(costs.transfer_s, costs.backward_s[:-1])[: len(arrived_s)]
            slowest_s = np.maximum(slowest_s[1:], near_s)
        np.maximum(end_s[: len(arrived_s)], arrived_s + (depth[far:] - 1) * slowest_s, out=end_s[: len(arrived_s)])
    return end_s


def _passage(costs: PlanCosts, chains: Chains, ahead: Ints) -> Floats:
    """By how much so many micro-batches delay the next one on its way through each stage, shape (S,)."""
    passage_s = chains.passage_s(costs.forward_s, ahead)
    passage_s[:, 1:] = np.maximum(passage_s[:, 1:], ahead[:, None] * costs.transfer_s)
    passage_s[:, 1:] = np.maximum(passage_s[:, 1:], _passage_of_links(costs, chains, ahead))
    slowest_s: Floats = np.where(np.tri(costs.num_stages, dtype=bool), passage_s, 0.0).max(axis=1)
    return slowest_s


def _passage_of_links(costs: PlanCosts, chains: Chains, ahead: Ints) -> Floats:
    """The same for the links of each boundary, which carry the activations of earlier ones too, shape (S, S - 1)."""
    passage_s = np.zeros((costs.num_stages, costs.num_stages - 1))
    ready_s = (chains.whole_before + costs.forward_s)[:-1]
    # Of each link, how late its last message so far leaves it, and when it would if it were alone.
    late_s: dict[str, Floats] = {}
    alone_s: dict[str, float] = {}
    for boundary, links in enumerate(costs.forward_links):
        for link in set(links):
            waits_s = late_s.get(link, 0.0) - (ready_s[boundary] - alone_s.get(link, 0.0))
            late_s[link] = np.maximum(0.0, waits_s) + ahead * costs.transfer_s[boundary]
            alone_s[link] = chains.whole_before[boundary + 1]
            passage_s[:, boundary] = np.maximum(passage_s[:, boundary], late_s[link])
    return passage_s


def _loops(costs: PlanCosts, stage: int) -> float:
    """Seconds from the end of B(1) to that of B(M - k) on a stage with M > k."""
    depth, work_s = costs.warmup_depth, (costs.forward_s + costs.backward_s)[stage:]
    left = costs.variant.num_microbatches - int(depth[stage]) - 1
    loop_s = np.cumsum(work_s + 2 * np.concatenate(([0.0], costs.transfer_s[stage:])))
    carried = depth[stage] - depth[stage:] + 1

    def of_one_kind(micro_batches: Ints) -> Floats:
        """As many loops of the best kind as there is room for, and the stage's own work; shape of the argument."""
        loops = micro_batches[..., None] // carried
        seconds: Floats = np.max(loops * loop_s + (micro_batches[..., None] - loops * carried) * work_s[0], axis=-1)
        return seconds

    return float(np.max(left // carried * loop_s + of_one_kind(left % carried)))
