"""DAPPLE: hybrid data and pipeline parallelism by the latency of a pivot stage.

Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP 2021 (arXiv 2007.01045).
Synchronous training with early backwards, which is our `1f1b`; the replicas of a stage split micro-batches evenly;
there is no tensor parallelism.

**Objective**, as we understand it. Transfers count as stages, with c forward and c backward. With M micro-batches,
AR_s the gradient all-reduce of stage s, and Q the pivot stage,

    L  = Tw + Ts + Te,    Tw = sum over s <= Q of F_s,    Ts = (M - 1)(F_Q + B_Q),
    Te = max over s of  AR_s + sum over a = s..Q of B_a  if s <= Q,  AR_s - sum over a = Q..s of B_a  if s > Q.

The pivot is the last stage at first; going to the front, stage s takes its place where (M - 1)(F_s + B_s) >
(M - 1)(F_Q + B_Q) + sum over s < a < Q of (F_a + B_a). So L can be updated as stages are put in front of a pipeline:
see `with_stage_in_front`.

**Search**, by the structure of the authors' code: a dynamic program over (layers, devices used, which devices) whose
value is the slowest stage or transfer,

    V(stage + rest) = max( (F + B) of the stage on its replicas, 2 c of the cut, V(rest) ),

where the devices of the new stage are picked in one of a few ways: *fresh first*, devices of an unused server, or
several such servers whole; *append first*, the rest of the devices of a server in use; *scatter first*, devices of all
servers alike. Whole replicated pipelines and straight pipelines compete as well, and the latency L picks the winner.

Approximated here:

- The program goes from the last stage to the first and counts stages, since what a stage keeps in memory depends on how
  many follow it. So there is a plan for every number of stages and occupied set, and L picks from all of these.
- The memory check is ours: parameters and optimizer state plus min(q, M) micro-batches in flight, instead of
  2 W + (s - i + 1) A.
- A host has one contiguous run of stages. So an append goes to the server of the neighbouring stage only, and
  scattering is all or nothing: if all stages scatter, the result is several identical pipelines, which are tried for
  every share of the cluster, each with the program above.
- Links and all-reduces are those of the cluster, not the constants of the code.

Since L only picks, its plan need not have the least L of all: it does in 33 of 40 random cases of up to 5 layers
and 9 devices; on average L is 1.2 % above the least, at worst 15 % (tests/unit/solvers/papers/test_dapple.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, UniformGroup
from stagecut.planner.solvers.papers.uniform.intervals import IntervalTimes
from stagecut.planner.solvers.papers.uniform.variants import offer_each, uniform_variants
from stagecut.planner.solvers.search.refusals import require_single_devices
from stagecut.planner.solvers.search.search import Search

NAME = "dapple"
OBJECTIVE = "latency, s"


def solve(problem: Problem, search: Search) -> Result:
    """The plan of least latency L of every variant; the simulator picks among them; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B or single devices, or servers have unequal numbers of devices.
    """
    require_single_devices(problem, NAME)
    offer_each(search, uniform_variants(search, NAME), _least_latency, OBJECTIVE)
    return search.result(NAME, proves=False)


def _least_latency(search: Search, variant: Variant, uniform: UniformCluster) -> tuple[Plan, float] | None:
    """The plan with the least L, among those that the program finds and that fit, and its L."""
    for candidate in sorted(Dapple(variant, uniform).candidates(search)):
        groups = [UniformGroup(replicas=number) for number in candidate.replicas]
        if plan := uniform.plan(variant, candidate.stops, groups, opens=candidate.opens):
            return plan, candidate.latency_s
    return None


class HybridPipeline(NamedTuple):
    """A pipeline with data parallel stages; pipelines sort by latency, then by number of stages."""

    latency_s: float
    num_stages: int
    stops: tuple[int, ...]
    """First layer after each stage."""
    replicas: tuple[int, ...]
    opens: tuple[bool, ...]
    """Whether each stage is on another server than the stage before it."""


FIRST_STAGE = np.dtype([("stop", np.int16), ("choice", np.int16), ("used_behind", np.int16), ("fresh", bool)])
"""The first stage of a pipeline: first layer after it, index of its replica count, devices in use on the first
server of the stages behind it, and whether it is on another server than that."""
NO_STAGE = (0.0, 0.0, -np.inf, 0.0, -np.inf, -np.inf)
"""The terms of L of a pipeline without stages: the first stage put in front is the pivot, whatever it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The best pipelines with a given number of stages, for every state (n, u, i), shape (N + 1, D + 1, L + 1).

    They hold layers [i, L) on n servers, with u devices of the first one in use.
    """

    value_s: Floats
    """V: the slowest stage, or transfer there and back; infinite where there is no such pipeline."""
    latency: Floats
    """The terms of L, see :func:`with_stage_in_front`, shape (6, N + 1, D + 1, L + 1)."""
    first: NDArray[np.void]
    """Their :data:`FIRST_STAGE`."""

    def offer(
        self, state: tuple[int, int], stage_s: Floats, rest_s: Floats, used_behind: Ints, *, choice: int, fresh: bool
    ) -> None:
        """Keep the better of the pipelines of a state and stage [i, j) before [j, L), with the best j for every i.

        Given are the seconds of [i, j), shape (L + 1, L + 1), and V, with the transfer to it, and u of [j, L).
        """
        if not np.isfinite(rest_s).any():
            return
        longest_s = np.maximum(stage_s, rest_s)
        stop, value_s = longest_s.argmin(axis=1), longest_s.min(axis=1)
        better = value_s < self.value_s[state]
        self.value_s[state][better] = value_s[better]
        first = self.first[state]
        first["stop"][better], first["used_behind"][better] = stop[better], used_behind[stop[better]]
        first["choice"][better], first["fresh"][better] = choice, fresh


class Dapple:
    """The dynamic program for one variant."""

    def __init__(self, variant: Variant, uniform: UniformCluster) -> None:
        model = uniform.costs.problem.model
        self._num_layers, self._num_microbatches = model.num_layers, variant.num_microbatches
        self._num_servers, self._size = uniform.num_servers, uniform.devices_per_server
        self._max_stages = uniform.costs.max_stages
        self._replicas = uniform.replicas(variant.micro_batch)
        self._intervals = [uniform.intervals(variant, UniformGroup(replicas=number)) for number in self._replicas]
        # Servers that a stage on fresh devices takes, for each replica count.
        self._num_opened = np.array([max(1, number // self._size) for number in self._replicas])
        self._inside_s, self._between_s = uniform.transfers_s(variant)
        # Nothing follows the last stage.
        self._inside_s[-1] = self._between_s[-1] = 0.0

    def candidates(self, search: Search) -> list[HybridPipeline]:
        """The best pipeline for every number of stages and every occupied set."""
        front, firsts, found = self._no_pipelines(), list[NDArray[np.void]](), list[HybridPipeline]()
        # No stage holds no layers, on no servers.
        front.value_s[0, 0, -1] = 0.0
        for position in range(1, self._max_stages + 1):
            if search.out_of_budget or not self._replicas:
                break
            front = self._with_one_more(front, position=position)
            firsts.append(front.first)
            ramp_s, pivot_s, _, _, end_s, _ = front.latency[..., 0]
            latency_s = ramp_s + (self._num_microbatches - 1) * pivot_s + end_s
            for servers, used in np.argwhere(np.isfinite(front.value_s[:, :, 0])).tolist():
                found.append(self._traced(firsts, servers, used, latency_s=float(latency_s[servers, used])))
        return found

    def _with_one_more(self, before: Front, *, position: int) -> Front:
        """Put a stage, in that position from the end, in front of the best pipelines so far."""
        after, every_layer = self._no_pipelines(), np.ones(self._num_layers + 1, dtype=int)
        times = [stages.fitting(min(position, self._num_microbatches)) for stages in self._intervals]
        appended_s = np.maximum(before.value_s, 2 * self._inside_s)
        fresh_s, least_used = np.maximum(before.value_s.min(axis=1), 2 * self._between_s), before.value_s.argmin(axis=1)
        for choice, number in enumerate(self._replicas):
            stage_s = times[choice].work_s
            for servers in range(self._num_servers + 1):
                for used in range(1, self._size - number + 1):
                    state, rest_s = (servers, used + number), appended_s[servers, used]
                    after.offer(state, stage_s, rest_s, used * every_layer, choice=choice, fresh=False)
                state = (servers + int(self._num_opened[choice]), min(number, self._size))
                if state[0] <= self._num_servers:
                    after.offer(state, stage_s, fresh_s[servers], least_used[servers], choice=choice, fresh=True)
        self._update_latency(before, after, times)
        return after

    def _update_latency(self, before: Front, after: Front, times: list[IntervalTimes]) -> None:
        """Fill in the terms of L for all pipelines of a front."""
        state = np.nonzero(np.isfinite(after.value_s))
        stop, choice, used_behind, fresh = (after.first[name][state] for name in after.first.dtype.names or ())
        servers_behind = state[0] - np.where(fresh, self._num_opened[choice], 0)
        terms = before.latency[:, servers_behind, used_behind, stop]
        if (stop < self._num_layers).all():
            transfer_s = np.where(fresh, self._between_s[stop], self._inside_s[stop])
            terms = with_stage_in_front(terms, transfer_s, transfer_s, np.zeros(len(stop)), self._num_microbatches)
        stage = (choice, state[2], stop)
        forward_s = np.stack([stages.forward_s for stages in times])[stage]
        backward_s = np.stack([stages.backward_s for stages in times])[stage]
        sync_s = np.stack([stages.sync_s for stages in times])[stage]
        terms = with_stage_in_front(terms, forward_s, backward_s, sync_s, self._num_microbatches)
        after.latency[:, state[0], state[1], state[2]] = terms

    def _no_pipelines(self) -> Front:
        shape = (self._num_servers + 1, self._size + 1, self._num_layers + 1)
        latency = np.broadcast_to(np.reshape(NO_STAGE, (6, 1, 1, 1)), (6, *shape)).copy()
        return Front(value_s=np.full(shape, np.inf), latency=latency, first=np.zeros(shape, dtype=FIRST_STAGE))

    def _traced(self, firsts: list[NDArray[np.void]], servers: int, used: int, *, latency_s: float) -> HybridPipeline:
        """The pipeline of a state with all layers, traced from its first stage."""
        start, stops, replicas, opens = 0, list[int](), list[int](), [True]
        for first in reversed(firsts):
            start, choice, used, fresh = first[servers, used, start].item()
            servers -= fresh * int(self._num_opened[choice])
            stops.append(start)
            replicas.append(self._replicas[choice])
            opens.append(fresh)
        return HybridPipeline(latency_s, len(stops), tuple(stops), tuple(replicas), tuple(opens[:-1]))


def with_stage_in_front(
    terms: Floats, forward_s: Floats, backward_s: Floats, sync_s: Floats, num_microbatches: int
) -> Floats:
    """Update Tw, F_Q + B_Q, sum of (F + B) before Q, sum of B up to Q, Te, and max over s of AR_s - sum of B up to s.

    The terms are these six of n pipelines, shape (6, n); the times those of the stages put in front, shape (n,) each.
    """
    ramp_s, pivot_s, before_s, drain_s, end_s, later_s = terms
    work_s, repeats = forward_s + backward_s, num_microbatches - 1
    takes_over = repeats * work_s > repeats * pivot_s + before_s
    # A new pivot restarts the sums: nothing is before it, and what was at or before the old pivot is now behind.
    new_drain_s = np.where(takes_over, 0.0, drain_s) + backward_s
    own_end_s = sync_s + new_drain_s
    return np.stack(
        [
            np.where(takes_over, 0.0, ramp_s) + forward_s,
            np.where(takes_over, work_s, pivot_s),
            np.where(takes_over, 0.0, before_s + work_s),
            new_drain_s,
            np.maximum(own_end_s, np.where(takes_over, later_s - backward_s, end_s)),
            np.maximum(sync_s, later_s) - backward_s,
        ]
    )
