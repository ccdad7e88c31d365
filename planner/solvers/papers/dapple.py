"""DAPPLE: hybrid data and pipeline parallelism by the latency of a pivot stage.

Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP 2021
(arXiv 2007.01045). Synchronous training with early backwards, which is our `1f1b`; micro-batches are
split evenly over the replicas of a stage; there is no tensor parallelism.

**Objective**, as we understand it. Transfers count as stages, with c forward and c backward. With M
micro-batches, AR_s the gradient all-reduce of stage s, and Q the pivot stage,

    L  = Tw + Ts + Te,    Tw = sum over s <= Q of F_s,    Ts = (M - 1)(F_Q + B_Q),
    Te = max over s of  AR_s + sum over a = s..Q of B_a  if s <= Q,  AR_s - sum over a = Q..s of B_a  if s > Q.

The pivot is the last stage at first; going to the front, stage s takes its place where
(M - 1)(F_s + B_s) > (M - 1)(F_Q + B_Q) + sum over s < a < Q of (F_a + B_a). So L can be updated
as stages are put in front of a pipeline: see `_with_stage_in_front`.

**Search**, by the structure of the authors' code: a dynamic program over (layers, devices used, which
devices) whose value is the slowest stage or transfer,

    V(stage + rest) = max( (F + B) of the stage on its replicas, 2 c of the cut, V(rest) ),

where the devices of the new stage are picked in one of a few ways: *fresh first*, devices of an unused
server, or several such servers whole; *append first*, the rest of the devices of a server in use; *scatter
first*, devices of all servers alike. Whole replicated pipelines and straight pipelines compete as well,
and the latency L picks the winner.

Approximated here:

- The program goes from the last stage to the first and counts stages, since what a stage keeps in memory
  depends on how many follow it. So there is a plan for every number of stages and occupied set, straight
  pipelines among them, and L picks from all of these.
- The memory check is ours, parameters and optimizer state plus min(q, M) micro-batches in flight, not
  2 W + (s - i + 1) A; stages that do not fit recompute if the job allows it.
- An append goes to the server of the neighbouring stage only, since a host has one contiguous run of stages.
  For the same reason scattering is all or nothing: if all stages scatter, the result is several identical pipelines,
  which are tried for every share of the cluster, each with the program above.
- Links and all-reduces are the slowest of each kind in the cluster, not the constants of the code.
- The micro-batch size is tried, not given. L picks the plan of each size and share, the simulator among these.

Since L only picks, its plan need not have the least L of all: it does in 33 of 40 random cases of up to 5 layers
and 9 devices; on average L is 1.2 % above the least, at worst 15 % (tests/unit/solvers/papers/test_dapple.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.solvers.papers.uniform.cluster import Group, UniformCluster
from stagecut.planner.solvers.papers.uniform.intervals import Intervals, IntervalTimes
from stagecut.planner.solvers.papers.uniform.variants import offer_each, uniform_variants
from stagecut.planner.solvers.search.refusals import require_single_devices
from stagecut.planner.solvers.search.search import Search

NAME = "dapple"
OBJECTIVE = "latency, s"
Indices = NDArray[np.int16]


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
    for candidate in sorted(candidates(search, terms_of(variant, uniform))):
        groups = [Group(replicas=number) for number in candidate.replicas]
        plan = uniform.plan(variant, candidate.stops, groups, opens=candidate.opens)
        if plan is not None:
            return plan, candidate.latency_s
    return None


class Candidate(NamedTuple):
    """A pipeline; candidates sort by latency, then by number of stages."""

    latency_s: float
    num_stages: int
    stops: tuple[int, ...]
    """First layer after each stage."""
    replicas: tuple[int, ...]
    opens: tuple[bool, ...]
    """Whether each stage is on another server than the stage before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Data of the dynamic program for one variant."""

    num_layers: int
    num_microbatches: int
    num_servers: int
    devices_per_server: int
    max_stages: int
    replicas: tuple[int, ...]
    """Allowed replica counts; those above the devices of a server take whole servers."""
    intervals: tuple[Intervals, ...]
    """Stages with each replica count."""
    inside_s: Floats
    """One way over each boundary within a server, 0 at the end, shape (L + 1,)."""
    between_s: Floats
    """The same between servers."""

    @property
    def num_opened(self) -> Ints:
        """Servers that a stage on fresh devices takes, for each replica count."""
        return np.array([max(1, number // self.devices_per_server) for number in self.replicas])


def terms_of(variant: Variant, uniform: UniformCluster) -> Terms:
    """The data for a variant."""
    replicas, model = uniform.replicas(variant.micro_batch), uniform.costs.problem.model
    message_bytes = variant.micro_batch * model.boundary_bytes()
    crossed = np.arange(model.num_layers + 1) < model.num_layers
    return Terms(
        num_layers=model.num_layers,
        num_microbatches=variant.num_microbatches,
        num_servers=uniform.num_servers,
        devices_per_server=uniform.devices_per_server,
        max_stages=uniform.costs.max_stages,
        replicas=replicas,
        intervals=tuple(uniform.intervals(variant, Group(replicas=number)) for number in replicas),
        inside_s=np.where(crossed, uniform.inside.transfer_s(message_bytes), 0.0),
        between_s=np.where(crossed, uniform.between.transfer_s(message_bytes), 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStages:
    """The first stage of each pipeline of a :class:`Front`, in the same shape."""

    stop: Indices
    choice: Indices
    """Index of its replica count."""
    used_behind: Indices
    """Devices in use on the first server of the stages behind it."""
    fresh: Bools
    """Whether it is on another server than the stage behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The best pipelines with a given number of stages, for every state (n, u, i), shape (N + 1, D + 1, L + 1).

    They hold layers [i, L) on n servers, with u devices of the first one in use.
    """

    value_s: Floats
    """V: the slowest stage, or transfer there and back; infinite where there is no such pipeline."""
    latency: Floats
    """The terms of L, see `_with_stage_in_front`, shape (6, N + 1, D + 1, L + 1)."""
    first: FirstStages


def candidates(search: Search, terms: Terms) -> list[Candidate]:
    """The best pipeline for every number of stages and every occupied set."""
    front, firsts, found = _no_front(terms), list[FirstStages](), list[Candidate]()
    # No stage holds no layers, on no servers.
    front.value_s[0, 0, -1] = 0.0
    for position in range(1, terms.max_stages + 1):
        if search.out_of_budget or not terms.replicas:
            break
        front = _extend(terms, front, position=position)
        firsts.append(front.first)
        latency_s = _latency_s(front, terms.num_microbatches)
        for servers, used in np.argwhere(np.isfinite(front.value_s[:, :, 0])).tolist():
            found.append(_candidate(terms, firsts, servers, used, latency_s=float(latency_s[servers, used])))
    return found


def _latency_s(front: Front, num_microbatches: int) -> Floats:
    """L of the pipelines with all layers, shape (N + 1, D + 1)."""
    ramp_s, pivot_s, _, _, end_s, _ = front.latency[..., 0]
    latency_s: Floats = ramp_s + (num_microbatches - 1) * pivot_s + end_s
    return latency_s


def _extend(terms: Terms, before: Front, *, position: int) -> Front:
    """Put a stage, in that position from the end, in front of the best pipelines so far."""
    after, size = _no_front(terms), terms.devices_per_server
    times = [stages.fitting(min(position, terms.num_microbatches)) for stages in terms.intervals]
    appended_s = np.maximum(before.value_s, 2 * terms.inside_s)
    fresh_s, least_used = np.maximum(before.value_s.min(axis=1), 2 * terms.between_s), before.value_s.argmin(axis=1)
    for choice, number in enumerate(terms.replicas):
        stage_s = times[choice].work_s
        for servers in range(terms.num_servers + 1):
            for used in range(1, size - number + 1):
                _offer(after, (servers, used + number), stage_s, appended_s[servers, used], choice, used)
            state = (servers + int(terms.num_opened[choice]), min(number, size))
            if state[0] <= terms.num_servers:
                _offer(after, state, stage_s, fresh_s[servers], choice, least_used[servers], fresh=True)
    _carry_latency(terms, before, after, times)
    return after


def _offer(
    after: Front,
    state: tuple[int, int],
    stage_s: Floats,
    rest_s: Floats,
    choice: int,
    used_behind: int | Ints,
    *,
    fresh: bool = False,
) -> None:
    """Keep the better of the pipelines of a state and stage [i, j) before [j, L), with the best j for every i.

    Parameters
    ----------
    stage_s
        Seconds of [i, j), shape (L + 1, L + 1).
    rest_s
        V of [j, L), including the transfer to it, shape (L + 1,).
    used_behind
        u of the rest: the same for all j, or of shape (L + 1,).
    """
    if not np.isfinite(rest_s).any():
        return
    longest_s = np.maximum(stage_s, rest_s)
    stop = longest_s.argmin(axis=1)
    value_s = longest_s[np.arange(len(stop)), stop]
    better = value_s < after.value_s[state]
    after.value_s[state][better] = value_s[better]
    first = after.first
    first.stop[state][better] = stop[better]
    first.choice[state][better] = choice
    first.used_behind[state][better] = np.broadcast_to(used_behind, stop.shape)[stop][better]
    first.fresh[state][better] = fresh


def _carry_latency(terms: Terms, before: Front, after: Front, times: list[IntervalTimes]) -> None:
    """Update the terms of L for all pipelines of a front."""
    first, state = after.first, np.nonzero(np.isfinite(after.value_s))
    stop, choice, fresh = first.stop[state], first.choice[state], first.fresh[state]
    servers_behind = state[0] - np.where(fresh, terms.num_opened[choice], 0)
    latency = before.latency[:, servers_behind, first.used_behind[state], stop]
    if (stop < terms.num_layers).all():
        transfer_s = np.where(fresh, terms.between_s[stop], terms.inside_s[stop])
        latency = _with_stage_in_front(latency, transfer_s, transfer_s, np.zeros(len(stop)), terms.num_microbatches)
    forward_s, backward_s, sync_s = (
        np.stack([getattr(stages, name) for stages in times])[choice, state[2], stop]
        for name in ("forward_s", "backward_s", "sync_s")
    )
    after.latency[:, state[0], state[1], state[2]] = _with_stage_in_front(
        latency, forward_s, backward_s, sync_s, terms.num_microbatches
    )


NO_STAGE = (0.0, 0.0, -np.inf, 0.0, -np.inf, -np.inf)
"""The terms of a pipeline without stages: the first stage put in front is the pivot, whatever it takes."""


def _with_stage_in_front(
    latency: Floats, forward_s: Floats, backward_s: Floats, sync_s: Floats, num_microbatches: int
) -> Floats:
    """Update Tw, F_Q + B_Q, sum of (F + B) before Q, sum of B up to Q, Te, and max over s of AR_s - sum of B up to s.

    Parameters
    ----------
    latency
        These six terms for n pipelines, shape (6, n).
    forward_s, backward_s, sync_s
        Times of the stages put in front, shape (n,) each.
    """
    ramp_s, pivot_s, before_s, drain_s, end_s, later_s = latency
    work_s, repeats = forward_s + backward_s, num_microbatches - 1
    takes_over = repeats * work_s > repeats * pivot_s + before_s
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


def _no_front(terms: Terms) -> Front:
    """A front without pipelines."""
    shape = (terms.num_servers + 1, terms.devices_per_server + 1, terms.num_layers + 1)
    numbers = {name: np.zeros(shape, dtype=np.int16) for name in ("stop", "choice", "used_behind")}
    return Front(
        value_s=np.full(shape, np.inf),
        latency=np.broadcast_to(np.reshape(NO_STAGE, (6, 1, 1, 1)), (6, *shape)).copy(),
        first=FirstStages(**numbers, fresh=np.zeros(shape, dtype=bool)),
    )


def _candidate(terms: Terms, firsts: list[FirstStages], servers: int, used: int, *, latency_s: float) -> Candidate:
    """The pipeline of a state with all layers, traced from its first stage."""
    start, stops, replicas, opens = 0, list[int](), list[int](), [True]
    for first in reversed(firsts):
        state = (servers, used, start)
        start, used, choice, fresh = (
            int(column[state]) for column in (first.stop, first.used_behind, first.choice, first.fresh)
        )
        servers -= fresh * int(terms.num_opened[choice])
        stops.append(start)
        replicas.append(terms.replicas[choice])
        opens.append(bool(fresh))
    return Candidate(
        latency_s=latency_s,
        num_stages=len(stops),
        stops=tuple(stops),
        replicas=tuple(replicas),
        opens=tuple(opens[:-1]),
    )
