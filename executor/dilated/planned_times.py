"""Planned durations, which dilated mode enforces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stagecut.planner.core.messages.checks import require_positive
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.cost.plan_costs import OwnTimes, PlanCosts, TaskKind
from stagecut.planner.simulator.action_lists import Action, Op
from stagecut.planner.simulator.compilation import MessageSizes, compile_actions
from stagecut.planner.simulator.engine import run
from stagecut.planner.simulator.iteration_graph import IterationGraph
from stagecut.planner.simulator.routes import RouteNames, flow_routes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTimes:
    """Seconds of the actions, transfers, all-reduces and optimizer steps of one pipeline of S stages."""

    micro_batch: int
    """Samples that actions and transfers are timed for; other sizes are scaled in proportion."""
    forward_s: tuple[float, ...]
    """One per stage."""
    backward_s: tuple[float, ...]
    """One per stage; each half of a split backward takes half as long."""
    transfer_s: tuple[float, ...]
    """One per boundary, S - 1 in all; the same for activations and gradients."""
    sync_s: tuple[float, ...]
    """One per stage."""
    update_s: tuple[float, ...]
    """One per stage."""
    routes: RouteNames
    """Names of the links of each flow, 3 S - 2 entries: see :mod:`stagecut.planner.simulator.iteration_graph`."""
    own_s: OwnTimes = field(default_factory=dict)
    """Exceptions to proportional times."""

    @classmethod
    def of(cls, costs: PlanCosts) -> "PlannedTimes":
        """The durations given by a plan's costs."""
        return cls(
            micro_batch=costs.variant.micro_batch,
            forward_s=tuple(costs.forward_s.tolist()),
            backward_s=tuple(costs.backward_s.tolist()),
            transfer_s=tuple(costs.transfer_s.tolist()),
            sync_s=tuple(costs.sync_s.tolist()),
            update_s=tuple(costs.update_s.tolist()),
            routes=flow_routes(costs),
            own_s=costs.own_s,
        )

    @property
    def num_stages(self) -> int:
        """Number of stages, S."""
        return len(self.forward_s)

    def scaled(self, times: float) -> "PlannedTimes":
        """Multiply all durations by a factor.

        Raises
        ------
        BadInputError
            If the number is not positive.
        """
        require_positive("dilated mode", "time scale", times)

        def scaled(seconds: Sequence[float]) -> tuple[float, ...]:
            return tuple(times * value for value in seconds)

        return replace(
            self,
            forward_s=scaled(self.forward_s),
            backward_s=scaled(self.backward_s),
            transfer_s=scaled(self.transfer_s),
            sync_s=scaled(self.sync_s),
            update_s=scaled(self.update_s),
            own_s={key: times * seconds for key, seconds in self.own_s.items()},
        )

    def action_s(self, op: Op, stage: int, num_samples: int) -> float:
        """Seconds of one action, over all replicas of its stage."""
        if op is Op.FORWARD:
            return self._seconds(TaskKind.FORWARD, stage, num_samples, self.forward_s[stage])
        whole_s = self._seconds(TaskKind.BACKWARD, stage, num_samples, self.backward_s[stage])
        return whole_s if op is Op.BACKWARD else whole_s / 2

    def message_s(self, op: Op, stage: int, num_samples: int) -> float:
        """Seconds of one message that a stage sends, excluding its wait for links."""
        if op is Op.FORWARD:
            return self._seconds(TaskKind.SEND_FORWARD, stage, num_samples, self.transfer_s[stage])
        return self._seconds(TaskKind.SEND_BACKWARD, stage, num_samples, self.transfer_s[stage - 1])

    def _seconds(self, kind: TaskKind, stage: int, num_samples: int, micro_batch_s: float) -> float:
        return self.own_s.get((kind, stage, num_samples), micro_batch_s * num_samples / self.micro_batch)

    def iteration_s(self, lists: Sequence[Sequence[Action]], sizes: MessageSizes | None = None) -> float:
        """Simulated time of one iteration of these action lists, with messages of these sizes.

        Raises
        ------
        BadInputError
            If the lists cannot be played, or contain split backwards.
        """
        _, _, ends_s = self._simulated(lists, sizes)
        return float(ends_s.max())

    def start_up_s(self, lists: Sequence[Sequence[Action]], sizes: MessageSizes | None = None) -> float:
        """Simulated time until the last stage begins its first forward.

        Raises
        ------
        BadInputError
            If the lists cannot be played, or contain split backwards.
        """
        graph, starts_s, _ = self._simulated(lists, sizes)
        return float(starts_s[(graph.kind == TaskKind.FORWARD) & (graph.stage == self.num_stages - 1)].min())

    def _simulated(
        self, lists: Sequence[Sequence[Action]], sizes: MessageSizes | None
    ) -> tuple[IterationGraph, Floats, Floats]:
        """Start and end of every task."""
        graph = compile_actions(lists, sizes)
        durations_s: Floats = np.fromiter(self._durations_s(graph), dtype=np.float64)
        starts_s, ends_s = run(graph, durations_s[:, None], routes=self.routes)
        return graph, starts_s[:, 0], ends_s[:, 0]

    def _durations_s(self, graph: IterationGraph) -> Iterator[float]:
        columns = (column.tolist() for column in (graph.kind, graph.stage, graph.hi - graph.lo))
        for kind, stage, num_samples in zip(*columns, strict=True):
            match kind:
                case TaskKind.FORWARD:
                    yield self.action_s(Op.FORWARD, stage, num_samples)
                case TaskKind.BACKWARD:
                    yield self.action_s(Op.BACKWARD, stage, num_samples)
                case TaskKind.SEND_FORWARD:
                    yield self.message_s(Op.FORWARD, stage, num_samples)
                case TaskKind.SEND_BACKWARD:
                    yield self.message_s(Op.BACKWARD, stage, num_samples)
                case TaskKind.SYNC:
                    yield self.sync_s[stage]
                case _:
                    yield self.update_s[stage]
