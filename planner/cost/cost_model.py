"""A plan turned into numbers."""

import itertools
from collections.abc import Callable

import numpy as np

from planner.core.placement import Hosting, Placement, hosting_of
from planner.core.plan import Plan, Stage
from planner.core.problem import Problem
from planner.cost.links import link_between, route_between, sync_route
from planner.cost.plan_costs import Floats, PlanCosts
from planner.cost.stage_costs import StageCostModel, StageCosts


class CostModel:
    """Costs of stages and plans of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.stages = StageCostModel(problem)
        self._boundary_bytes = problem.model.boundary_bytes()
        self._devices = {device.name: device for device in problem.cluster.devices()}
        self._stage_cache: dict[tuple[object, ...], StageCosts] = {}

    def hosting(self, stage: Stage) -> Hosting:
        """Where a stage of a plan runs.

        Raises
        ------
        BadInputError
            If a device is unknown, or the devices make no placement of the search space.
        """
        return hosting_of(self.problem.cluster, stage.devices, self._devices)

    def stage(self, placement: Placement, *, micro_batch: int, recompute: bool, start: int, stop: int) -> StageCosts:
        """Costs of one stage, each of shape (1,); computed once."""
        key = (placement, micro_batch, recompute, start, stop)
        if key not in self._stage_cache:
            self._stage_cache[key] = self.stages.stages(
                placement, micro_batch=micro_batch, recompute=recompute, start=np.array([start]), stop=np.array([stop])
            )
        return self._stage_cache[key]

    def plan(self, plan: Plan) -> PlanCosts:
        """Costs of a plan of one pipeline.

        Raises
        ------
        BadInputError
            See :meth:`hosting`.
        """
        stages = plan.stages
        hostings = [self.hosting(stage) for stage in stages]
        costs = [self._stage_of(stage, hosting) for stage, hosting in zip(stages, hostings, strict=True)]
        pairs = list(itertools.pairwise(hostings))
        cluster = self.problem.cluster

        def column(value: Callable[[StageCosts], Floats]) -> Floats:
            return np.array([value(cost)[0] for cost in costs])

        return PlanCosts(
            variant=plan.variant,
            warmup_depth=np.array([stage.warmup_depth for stage in stages]),
            forward_s=column(lambda cost: cost.forward_s),
            backward_s=column(lambda cost: cost.backward_s),
            transfer_s=np.array(
                [
                    self._transfer_s(stage.stop, plan.micro_batch, sender, receiver)
                    for stage, (sender, receiver) in zip(stages, pairs, strict=False)
                ]
            ),
            forward_links=tuple(route_between(cluster, sender, receiver) for sender, receiver in pairs),
            backward_links=tuple(route_between(cluster, receiver, sender) for sender, receiver in pairs),
            sync_s=column(lambda cost: cost.sync_s),
            sync_links=tuple(sync_route(cluster, hosting) for hosting in hostings),
            update_s=column(lambda cost: cost.update_s),
            static_bytes=column(lambda cost: cost.static_bytes),
            saved_bytes=column(lambda cost: cost.saved_bytes),
            working_bytes=column(lambda cost: cost.working_bytes),
            limit_bytes=np.array([self.stages.device_type(hosting.placement).memory_bytes for hosting in hostings]),
        )

    def _stage_of(self, stage: Stage, hosting: Hosting) -> StageCosts:
        return self.stage(
            hosting.placement,
            micro_batch=stage.forward_micro_batch,
            recompute=stage.recompute,
            start=stage.start,
            stop=stage.stop,
        )

    def _transfer_s(self, boundary: int, micro_batch: int, sender: Hosting, receiver: Hosting) -> float:
        link = link_between(self.problem.cluster, sender, receiver)
        return link.transfer_s(micro_batch * self._boundary_bytes[boundary])
