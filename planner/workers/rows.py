"""Lower bounds on the period of a virtual worker, stage by stage: the rows that every execution keeps."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats
from stagecut.planner.core.cluster import UNLIMITED, Link
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.cost.wave_costs import WaveCostModel
from stagecut.planner.workers.kinds import Kinds, Resource
from stagecut.planner.workers.owners import spread_owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all virtual workers of a plan have in common."""

    in_flight: int
    """N_m."""
    wave: int
    """H."""
    alone: bool
    """Whether there is a single worker, which exchanges nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows:
    """Stages [i, j) of one kind of device with n - 1 stages behind them; each of shape (L + 1, L + 1)."""

    compute_s: Floats
    """F + B, recomputation included; infinite if the stage is empty or does not fit."""
    update_s: Floats
    recompute: Floats
    """1 where the stage only fits with recomputation."""


class RowTables:
    """Times of every possible stage, with what the exchange of updates adds.

    A stage is on one device, so that only its kind, its layers, the number of stages behind it and N_m matter.
    """

    def __init__(self, problem: Problem, kinds: Kinds) -> None:
        self.problem, self.kinds, self.model = problem, kinds, WaveCostModel(problem)
        assert problem.job.waves is not None
        self.choices = problem.job.waves
        self.num_layers = problem.model.num_layers
        self._start, self._stop = np.triu_indices(self.num_layers + 1, k=1)
        self._costs: dict[tuple[int, int, bool], StageCosts] = {}
        self._rows: dict[tuple[int, int, int], StageRows] = {}

    def depth(self, in_flight: int, num_behind: int) -> int:
        """Minibatches that a stage holds, with so many stages from itself to the last one.

        One more for every transfer that is to be hidden if a local step follows each minibatch; 1F1B with a flush
        otherwise.
        """
        eager = self.choices.local_step is LocalStep.MINIBATCH
        return min(in_flight, 2 * num_behind - 1 if eager else num_behind)

    def stages(self, kind: int, in_flight: int, num_behind: int) -> StageRows:
        """The stages of one kind with `num_behind` stages from themselves to the last one."""
        depth = self.depth(in_flight, num_behind)
        key = (kind, in_flight, depth)
        if key not in self._rows:
            self._rows[key] = self._stages(kind, in_flight, depth)
        return self._rows[key]

    def _stages(self, kind: int, in_flight: int, depth: int) -> StageRows:
        compute_s, recompute = np.full(len(self._start), np.inf), np.zeros(len(self._start))
        limit_bytes = self.model.stages.device_type(self.kinds.placements[kind]).memory_bytes
        for mode in self._modes:
            costs = self.costs(kind, in_flight, recompute=mode)
            fits = np.isinf(compute_s) & (costs.memory_bytes(np.array(depth)) <= limit_bytes)
            compute_s = np.where(fits, costs.forward_s + costs.backward_s, compute_s)
            recompute = np.where(fits, float(mode), recompute)
        update_s = self.costs(kind, in_flight, recompute=self._modes[0]).update_s
        return StageRows(
            compute_s=self._square(compute_s, np.inf),
            update_s=self._square(update_s, 0.0),
            recompute=self._square(recompute, 0.0),
        )

    @property
    def _modes(self) -> tuple[bool, ...]:
        allowed = self.problem.job.recompute
        return {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}[allowed]

    def costs(self, kind: int, in_flight: int, *, recompute: bool) -> StageCosts:
        """Costs of all stages i < j, flat, i in the outer order."""
        key = (kind, in_flight, recompute)
        if key not in self._costs:
            self._costs[key] = self.model.stage_costs(
                self.kinds.placements[kind],
                minibatch=self.problem.job.micro_batches[0],
                in_flight=in_flight,
                local_step=self.choices.local_step,
                recompute=recompute,
                start=self._start,
                stop=self._stop,
            )
        return self._costs[key]

    def _square(self, values: Floats, empty: float) -> Floats:
        square = np.full((self.num_layers + 1, self.num_layers + 1), empty)
        square[self._start, self._stop] = values
        return square


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The push and the pull between the stages [i, j) of one kind and one owner, each of shape (L + 1, L + 1)."""

    push_s: Floats
    pull_s: Floats
    push_uses: tuple[tuple[int, str], ...]
    """Server class and name of the resources that are certainly occupied."""
    pull_uses: tuple[tuple[int, str], ...]


class ExchangeTables:
    """Least times of pushes and pulls between stages and parameter servers.

    Owners that are spread over the hosts are known beforehand. Local ones depend on the plan, and a delayed all-reduce
    on all workers: nothing is charged for them here.
    """

    def __init__(self, tables: RowTables) -> None:
        self._tables, self._kinds = tables, tables.kinds
        choices = tables.choices
        served = choices.carrier is Carrier.PARAMETER_SERVER and choices.shards is ShardPlacement.SPREAD
        owners = spread_owners(tables.model) if served else ()
        self._messages = [self._messages_of(kind, owners) for kind in range(self._kinds.num_kinds)]

    def latency_s(self, kind: int) -> Floats:
        """Push and pull of the slowest owner, shape (L + 1, L + 1)."""
        times = [message.push_s + message.pull_s for message in self._messages[kind]]
        return np.max(times, axis=0) if times else self._nothing()

    def load_s(self, kind: int, resource: Resource) -> Floats:
        """Seconds for which the exchange of a wave occupies a resource, shape (L + 1, L + 1).

        A worker pulls at least once in D + 1 waves: what it pulls at the gate of wave c has clock c at most.
        """
        load, use = self._nothing(), (resource.server_class, resource.name)
        pulls = 1 / (self._tables.choices.clock_distance + 1)
        for message in self._messages[kind]:
            load += message.push_s * message.push_uses.count(use)
            load += message.pull_s * message.pull_uses.count(use) * pulls
        return load

    def _nothing(self) -> Floats:
        return np.zeros((self._tables.num_layers + 1, self._tables.num_layers + 1))

    def _messages_of(self, kind: int, owners: tuple[str, ...]) -> list[Message]:
        return [self._message(kind, owner, np.array(owners) == owner) for owner in dict.fromkeys(owners)]

    def _message(self, kind: int, owner: str, owned: Bools) -> Message:
        model, optimizer = self._tables.model, self._tables.problem.job.optimizer
        params, held = (
            np.concatenate(([0.0], np.cumsum(values))) for values in (np.where(owned, model.layer_params, 0.0), owned)
        )
        some = (held[None, :] - held[:, None]) > 0
        num_params = np.maximum(params[None, :] - params[:, None], 0.0)
        link, there, back = self._link(kind, owner)

        def seconds(bytes_per_param: float) -> Floats:
            return np.where(some, link.transfer_s(num_params * bytes_per_param), 0.0)

        return Message(
            push_s=seconds(optimizer.gradient_bytes),
            pull_s=seconds(optimizer.weight_bytes),
            push_uses=there,
            pull_uses=back,
        )

    def _link(self, kind: int, owner: str) -> tuple[Link, tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]]:
        """The fastest link there may be, and the resources that a push and a pull certainly occupy."""
        cluster, own = self._kinds.cluster, self._kinds.placements[kind]
        other = next(i for i in range(len(cluster.servers)) if owner in cluster.host_names(i))
        island = cluster.servers[own.server_class].islands[own.island]
        if other != own.server_class:
            link = link_between_hosts(cluster, (own.server_class, 1), (other, 1))
            there, back = (
                ((own.server_class, "nic-out"), (other, "nic-in")),
                ((other, "nic-out"), (own.server_class, "nic-in")),
            )
            return link, there, back
        if cluster.servers[other].count > 1:
            # In the owner's host or in another one: that is decided later.
            return UNLIMITED, (), ()
        uses = ((own.server_class, f"fabric-{own.island}"),) if island.shared else ()
        return island.fabric, uses, uses
