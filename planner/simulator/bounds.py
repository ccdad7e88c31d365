"""Lower bounds on the simulated iteration time of one plan.

With stages s = 0 .. S - 1, M micro-batches, warm-up depth k_s, g_s = all-reduce + optimizer step,

    PF_s = sum over a < s of F_a + c_a,    PB_s = sum over a < s of B_a + c_a,
    total = sum of F + B over all stages + 2 sum of c.

Each row is the earliest end of a chain of work that every schedule of its kind must do in that
order, so queues and further waits only add to it. Derivations: docs/bounds.md.

- busy:  PF_s + M (F_s + B_s) + PB_s + g_0. A stage computes M forwards and backwards, after the
  first forward has reached it and before the last gradient returns to the first stage.
- fill:  total + (M - 1)(F_s + B_s) - (k_s - 1) F_s + g_0. At most k_s forwards of a stage lie
  before its first backward, which itself waits for the round trip to the last stage.
- sync:  PF_s + M (F_s + B_s) + g_s. The stage's own all-reduce and step follow its last backward.
- drain: total - PB_s + (M - 1)(F_s + B_s) - (k_s - 1) F_s + g_s. The same after the fill chain.
- pair, stages s and s + 1:  total + n W + (M - 1 - a n) B_s + max(0, M - k_s - a n) F_s + g_0 with
  a = k_s - k_{s+1} + 1, W = F_s + B_s + F_{s+1} + B_{s+1} + 2 c_s and
  n = floor((M - 1 - k_s) / a) + 1 if M > k_s else 0: a loop of the two stages carries a micro-batches.
- link:  total + (M - 1) c_s + g_0. A boundary carries M messages one after another.
- late, stages s <= e with M > k_s:  PF_e + F_e + total - PF_s - PB_s + (M - k_s - 1)(F_s + B_s) + k_e B_e
  + max(g_e, PB_e + g_0). Stage s starts its last forward after M - k_s backwards; once that micro-batch
  has come to stage e, k_e backwards are still to do there.
- queue: the latest of PF_s + M (F_s + B_s), total - PB_s + (M - 1)(F_s + B_s) - (k_s - 1) F_s and the end of B_s(M)
  in the late row, + the way home: the last gradient passes the stages before, and it and the all-reduces
  wait on the links that they share for those of later stages, which are ready sooner.
- load, per link that messages take: the first of them ready + M (sum of c over its flows) + B_t and the way home of
  stage t, which receives the gradients nearest to stage 0; the largest over the flows of all boundaries from any one
  on. Or of a few messages only: of activations alone, of late ones with early gradients.
- both ways, of boundaries whose two directions take a link:  PF_s + F_s + 2 M c_s + B_s + PB_s + g_0. The load row of
  these two flows with the least way home.
- flush, GPipe only:  total + (M - 1) max(F, c) + (M - 1) max(B, c) + g_0, each maximum over all
  stages and boundaries: forwards and backwards are two separate flow shops.

Where first forwards are halved, the forwards and activations in PF_s and `total` count as their first halves do, but
for F of the last stage; the PF of the late row stays whole. The n halved forwards of a stage add n (2 H - F) to its
M (F + B), with H half a forward.

Interleaved plans have rows of their own, see :mod:`stagecut.planner.simulator.interleaved_bounds`.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.schedule import Schedule, pair_loops
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import Chains, chains_of
from stagecut.planner.simulator.interleaved_bounds import interleaved_rows
from stagecut.planner.simulator.link_loads import load_rows
from stagecut.planner.simulator.sublot_bounds import sublot_rows
from stagecut.planner.simulator.turns import last_backwards, last_forwards
from stagecut.planner.simulator.ways_home import ways_home


def bound_rows(costs: PlanCosts, *, any_slicing: bool = False) -> dict[str, Floats]:
    """Seconds of every family of rows that holds for the plan's schedule.

    A family has one value per stage, per boundary, per link, or for the whole plan (shape (1,)). With `any_slicing` the
    rows hold for every sliced warm-up count, not only for that of the plan.
    """
    order = costs.interleaving
    if order is not None:
        return interleaved_rows(costs, order)
    if costs.sublots is not None:
        return sublot_rows(costs, costs.sublots)
    num, depth = costs.variant.num_microbatches, costs.warmup_depth
    forward_s, backward_s, transfer_s = costs.forward_s, costs.backward_s, costs.transfer_s
    chains = chains_of(costs, any_slicing=any_slicing)
    forward_before, backward_before = chains.forward_before, chains.backward_before
    total, tail_s = chains.total, chains.tail_s
    work_s = num * (forward_s + backward_s) + chains.halving_s
    later_s = (num - 1) * (forward_s + backward_s) - (depth - 1) * forward_s
    home_s = ways_home(costs)
    late_end_s = last_forwards(costs, chains) + depth * backward_s
    rows = {
        "busy": forward_before + work_s + backward_before + tail_s[0],
        "fill": total + later_s + tail_s[0],
        "sync": forward_before + work_s + tail_s,
        "drain": total - backward_before + later_s + tail_s,
        "pair": total + _pair_loops(costs) + tail_s[0],
        "link": total + (num - 1) * transfer_s + tail_s[0],
        "late": late_end_s + np.maximum(tail_s, backward_before + tail_s[0]),
        "queue": last_backwards(costs, chains) + home_s,
        "load": load_rows(costs, chains, home_s),
        "both ways": _both_ways(costs, chains),
    }
    if costs.variant.schedule is Schedule.GPIPE:
        slowest_s = max([*chains.passage_s(forward_s, num - 1), *(num - 1) * transfer_s])
        slowest_s += (num - 1) * max([*backward_s, *transfer_s])
        rows["flush"] = np.array([total + slowest_s + tail_s[0]])
    return rows


def lower_bound(costs: PlanCosts, families: tuple[str, ...] | None = None, *, any_slicing: bool = False) -> float:
    """The largest row of the named families, of all of them by default; see :func:`bound_rows`."""
    rows = bound_rows(costs, any_slicing=any_slicing)
    chosen = rows if families is None else {name: rows[name] for name in families if name in rows}
    return max(float(values.max()) for values in chosen.values() if len(values))


def _both_ways(costs: PlanCosts, chains: Chains) -> Floats:
    """The rows of the boundaries whose two directions take the same link, shape (these,)."""
    routes = zip(costs.forward_links, costs.backward_links, strict=True)
    chosen = np.array([not set(outward).isdisjoint(homeward) for outward, homeward in routes], dtype=bool)
    way_s = (chains.forward_before + chains.first_s + chains.backward_before + costs.backward_s)[:-1]
    rows_s: Floats = (way_s + 2 * costs.variant.num_microbatches * costs.transfer_s + chains.tail_s[0])[chosen]
    return rows_s


def _pair_loops(costs: PlanCosts) -> Floats:
    """What a pair row adds to the round trip, shape (S - 1,)."""
    micro_batches, depth = costs.variant.num_microbatches, costs.warmup_depth[:-1]
    per_loop, loops = pair_loops(depth, costs.warmup_depth[1:], micro_batches)
    work_s = costs.forward_s + costs.backward_s
    loop_s = work_s[:-1] + work_s[1:] + 2 * costs.transfer_s
    left = micro_batches - per_loop * loops
    extra_s: Floats = (
        loops * loop_s + (left - 1) * costs.backward_s[:-1] + np.maximum(0, left - depth) * costs.forward_s[:-1]
    )
    return extra_s
