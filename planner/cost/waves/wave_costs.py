"""Costs of virtual workers that train through waves: times and memory of stages, and what crosses the links."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.placement import DeviceGroup, Placement, device_group_of
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import WHOLE
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.links import link_between, link_between_hosts, route_between
from stagecut.planner.cost.stage_costs import StageCostModel, StageCosts
from stagecut.planner.cost.waves.wave_all_reduces import Route, WaveAllReduce, wave_all_reduce


def crosses_hosts(route: Route) -> bool:
    """Whether a message leaves its host."""
    return any(name.endswith(":nic-out") for name in route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The weights of a stage that one parameter server owns: what is pushed to it once a wave, and pulled from it.

    A pull brings the sum of the others' updates or, with one step a wave, the gradients of one wave after another: so
    many times as much as it has further waves.
    """

    owner: str
    """The server's host."""
    push_s: float
    pull_s: float
    push_links: Route
    pull_links: Route
    push_bytes: float
    pull_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCosts:
    """Costs of one virtual worker of S stages, per minibatch; arrays have shape (S,) unless stated."""

    worker: VirtualWorker
    forward_s: Floats
    backward_s: Floats
    """Recomputation included."""
    update_s: Floats
    """A local step: the optimizer's, and the copy of the weights that later minibatches start from."""
    transfer_s: Floats
    """Over each boundary, one way, shape (S - 1,)."""
    transfer_bytes: Floats
    """Of one such message, shape (S - 1,)."""
    forward_links: tuple[Route, ...]
    backward_links: tuple[Route, ...]
    static_bytes: Floats
    """Weights, gradients, optimizer state, further versions of the weights, and the update to be pushed."""
    saved_bytes: Floats
    working_bytes: Floats
    limit_bytes: Floats
    exchanges: tuple[tuple[Exchange, ...], ...]
    """By stage, one for each host that owns some of its weights; empty with a single worker, or by all-reduce."""

    @property
    def memory_bytes(self) -> Floats:
        """High-water mark of each device."""
        return self.static_bytes + self.activation_bytes + self.working_bytes

    @property
    def activation_bytes(self) -> Floats:
        """What is kept for the backwards of as many minibatches as run ahead."""
        return np.array([stage.warmup_depth for stage in self.worker.stages]) * self.saved_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveCosts:
    """Costs of a plan of virtual workers."""

    plan: WavePlan
    workers: tuple[WorkerCosts, ...]
    all_reduces: tuple[WaveAllReduce, ...] = ()
    """Those of each wave, by layers; empty with parameter servers or a single worker."""

    def all_reduce_s(self, worker: int) -> Floats:
        """Seconds of the all-reduces that each stage of a worker takes part in, one after another, shape (S,)."""
        seconds = np.zeros(self.plan.workers[worker].num_stages)
        for each in self.all_reduces:
            seconds[each.stages[worker]] += each.seconds
        return seconds


class WaveCostModel:
    """Costs of the virtual workers of one problem, each stage on a single device."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.cluster = problem, problem.cluster
        self.stages = StageCostModel(problem, WHOLE, problem.cluster)
        self._boundary_bytes = problem.model.boundary_bytes()
        self._devices = {device.name: device for device in problem.cluster.devices()}

    @cached_property
    def layer_params(self) -> Floats:
        """Parameters that each layer holds, copies of tied ones included, shape (L,)."""
        model = self.problem.model
        held_bytes = [layer.params_bytes + layer.shared_params_bytes for layer in model.layers]
        params: Floats = np.array(held_bytes) / model.precision.num_bytes
        return params

    def extra_bytes_per_param(self, in_flight: int, *, local_step: LocalStep) -> float:
        """What a stage keeps of each parameter besides weights, gradients and optimizer state.

        With a step after each minibatch, minibatch p + N_m computes with exactly the updates 1 .. p, though the stage
        may have computed up to N_m - 1 more: N_m versions are in use on every stage, whatever its position. Updates
        that are not pushed yet are summed in the precision of the gradients.
        """
        if local_step is LocalStep.WAVE:
            return 0.0
        optimizer = self.problem.job.optimizer
        return (in_flight - 1) * optimizer.weight_bytes + optimizer.gradient_bytes

    def pull_bytes_per_param(self, local_step: LocalStep) -> float:
        """What a pull brings of each parameter; with one step a wave, of each wave."""
        optimizer = self.problem.job.optimizer
        return optimizer.gradient_bytes if local_step is LocalStep.WAVE else optimizer.weight_bytes

    def stage_costs(
        self,
        placement: Placement,
        *,
        minibatch: int,
        in_flight: int,
        local_step: LocalStep,
        recompute: bool,
        start: Ints,
        stop: Ints,
    ) -> StageCosts:
        """Costs of the stages [start, stop) on one device, with their versions of the weights, each of shape (n,)."""
        plain = self.stages.stages(placement, micro_batch=minibatch, recompute=recompute, start=start, stop=stop)
        sums = np.concatenate(([0.0], np.cumsum(self.layer_params)))
        params = sums[stop] - sums[start]
        extra_bytes = self.extra_bytes_per_param(in_flight, local_step=local_step)
        # Each update leaves a new version: the weights are read and written once more.
        copies = 2 if local_step is LocalStep.MINIBATCH and in_flight > 1 else 0
        bandwidth = self.stages.device_type(placement).memory_bandwidth_bytes_per_s
        copied_s = copies * params * self.problem.job.optimizer.weight_bytes / bandwidth
        return StageCosts(
            forward_s=plain.forward_s,
            backward_s=plain.backward_s,
            sync_s=np.zeros_like(plain.sync_s),
            update_s=plain.update_s + copied_s,
            static_bytes=plain.static_bytes + extra_bytes * params,
            saved_bytes=plain.saved_bytes,
            working_bytes=plain.working_bytes,
        )

    def plan(self, plan: WavePlan) -> WaveCosts:
        """Costs of a plan; raises a BadInputError if a device is unknown."""
        workers = tuple(self._worker(plan, worker) for worker in plan.workers)
        return WaveCosts(plan=plan, workers=workers, all_reduces=tuple(self._all_reduces(plan)))

    def group(self, device: str) -> DeviceGroup:
        """A device as a device group of its own."""
        return device_group_of(self.cluster, (device,), self._devices)

    def link_to_host(self, group: DeviceGroup, owner: str) -> tuple[Link, Route, Route]:
        """The link between a device and a parameter server, and its routes there and back.

        In the host itself that is the device's fabric, between hosts their interfaces.
        """
        own, placement = self._host_of(group), group.placement
        server = self.cluster.servers[placement.server_class]
        if own == owner:
            island = server.islands[placement.island]
            route = (f"{own}:fabric-{placement.island}",) if island.shared else ()
            return island.fabric, route, route
        owner_class = self._host_classes[owner]
        link = link_between_hosts(self.cluster, (placement.server_class, 1), (owner_class, 1))
        return link, (f"{own}:nic-out", f"{owner}:nic-in"), (f"{owner}:nic-out", f"{own}:nic-in")

    @cached_property
    def _host_classes(self) -> dict[str, int]:
        classes = range(len(self.cluster.servers))
        return {name: index for index in classes for name in self.cluster.host_names(index)}

    def _host_of(self, group: DeviceGroup) -> str:
        return self.cluster.host_names(group.placement.server_class)[group.hosts[0]]

    def _worker(self, plan: WavePlan, worker: VirtualWorker) -> WorkerCosts:
        groups = [self.group(device) for device in worker.devices]
        costs = [
            self.stage_costs(
                group.placement,
                minibatch=worker.minibatch,
                in_flight=worker.in_flight,
                local_step=plan.local_step,
                recompute=stage.recompute,
                start=np.array([stage.start]),
                stop=np.array([stage.stop]),
            )
            for group, stage in zip(groups, worker.stages, strict=True)
        ]
        links = [link_between(self.cluster, *pair) for pair in pairwise(groups)]
        message_bytes = [worker.minibatch * self._boundary_bytes[stage.start] for stage in worker.stages[1:]]

        def column(name: str) -> Floats:
            return np.array([float(getattr(cost, name)[0]) for cost in costs])

        pairs = list(pairwise(groups))
        served = plan.carrier is Carrier.PARAMETER_SERVER and len(plan.workers) > 1
        return WorkerCosts(
            worker=worker,
            **{name: column(name) for name in ("forward_s", "backward_s", "update_s")},
            **{name: column(name) for name in ("static_bytes", "saved_bytes", "working_bytes")},
            transfer_s=np.array([link.transfer_s(size) for link, size in zip(links, message_bytes, strict=True)]),
            transfer_bytes=np.array(message_bytes),
            forward_links=tuple(route_between(self.cluster, a, b) for a, b in pairs),
            backward_links=tuple(route_between(self.cluster, b, a) for a, b in pairs),
            limit_bytes=np.array([self.stages.device_type(group.placement).memory_bytes for group in groups]),
            exchanges=tuple(
                self._exchanges(plan, group, stage.start, stage.stop) if served else ()
                for group, stage in zip(groups, worker.stages, strict=True)
            ),
        )

    def _exchanges(self, plan: WavePlan, group: DeviceGroup, start: int, stop: int) -> tuple[Exchange, ...]:
        optimizer, found = self.problem.job.optimizer, []
        owners = np.array(plan.owners[start:stop])
        for owner in dict.fromkeys(owners.tolist()):
            params = float(self.layer_params[start:stop][owners == owner].sum())
            if not self._is_exchanged(params):
                continue
            push_bytes = params * optimizer.gradient_bytes
            pull_bytes = params * self.pull_bytes_per_param(plan.local_step)
            link, there, back = self.link_to_host(group, owner)
            found.append(
                Exchange(
                    owner=owner,
                    push_s=link.transfer_s(push_bytes),
                    pull_s=link.transfer_s(pull_bytes),
                    push_links=there,
                    pull_links=back,
                    push_bytes=push_bytes,
                    pull_bytes=pull_bytes,
                )
            )
        return tuple(found)

    def _is_exchanged(self, size: float) -> bool:
        """Whether there is anything to exchange; where no layer has weights, empty messages keep workers in step."""
        return size > 0 or not self.layer_params.any()

    def _all_reduces(self, plan: WavePlan) -> Iterator[WaveAllReduce]:
        """One for each run of layers with weights; a single worker sums up nothing."""
        if plan.carrier is not Carrier.DELAYED_ALL_REDUCE or len(plan.workers) == 1:
            return
        for start, stop in plan.shared_runs():
            num_bytes = float(self.layer_params[start:stop].sum()) * self.problem.job.optimizer.gradient_bytes
            stages = tuple(worker.stage_with(start) for worker in plan.workers)
            groups = [self.group(worker.devices[s]) for worker, s in zip(plan.workers, stages, strict=True)]
            if self._is_exchanged(num_bytes):
                yield wave_all_reduce(self.cluster, groups, num_bytes=num_bytes, layers=(start, stop), stages=stages)
