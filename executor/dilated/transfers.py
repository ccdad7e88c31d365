"""The transfers of a plan, messages and all-reduces, and the links that each occupies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.dilated.shared_links import Transfer
from stagecut.executor.schedule.messages import Message
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.schedule.turns import Turn, turns_of
from stagecut.planner.simulator.action_lists import Action, Op
from stagecut.planner.simulator.routes import num_links, shared_routes


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTransfers:
    """All transfers of the ranks of one pipeline."""

    messages: Mapping[int, Transfer]
    """By message number; messages that replicas send each other at the same time share a transfer."""
    syncs: Mapping[int, Transfer]
    """All-reduces by stage, each shared by the copies in all pipelines."""
    num_links: int
    """Number of links in all pipelines together."""
    num_transfers: int
    """Number of transfers in all pipelines together."""


def transfers_of(
    times: PlannedTimes, lists: Sequence[Sequence[Action]], layout: RankLayout, *, pipeline: int = 0
) -> PipelineTransfers:
    """Transfers of one pipeline; those of other pipelines differ in the numbers of links and transfers.

    The messages of a boundary and direction are served one after another, so each such flow is a link
    of its own, in addition to the links that several flows share.
    """
    groups = _cells(turns_of(lists, layout, pipeline=pipeline))
    links = _LinkNumbers(times)
    first, after = pipeline * len(groups), layout.num_pipelines * len(groups)
    messages = [_message(times, group, links, first + i, pipeline) for i, group in enumerate(groups)]
    return PipelineTransfers(
        messages={part.number: transfer for transfer, group in zip(messages, groups, strict=True) for part in group},
        syncs={stage: _sync(times, layout, links, after + stage, stage) for stage in range(times.num_stages)},
        num_links=layout.num_pipelines * links.per_pipeline,
        num_transfers=after + times.num_stages,
    )


class _LinkNumbers:
    """Numbers the links: for each pipeline, first its message flows, then the links that flows share."""

    def __init__(self, times: PlannedTimes) -> None:
        self._routes = shared_routes(times.routes)
        self._num_flows = 2 * (times.num_stages - 1)
        self.per_pipeline = self._num_flows + num_links(self._routes)

    def of_flow(self, flow: int, pipeline: int) -> tuple[int, ...]:
        """The links of a flow in a pipeline."""
        first = pipeline * self.per_pipeline
        own = (first + flow,) if flow < self._num_flows else ()
        return (*own, *(first + self._num_flows + link for link in self._routes[flow]))


def _cells(turns: Mapping[int, Sequence[Turn]]) -> list[list[Message]]:
    """Messages between ranks, grouped into those of the simulator."""
    sent = [message for own in turns.values() for turn in own for message in turn.sends if not message.is_local]
    cells: dict[tuple[Op, int, int], list[Message]] = defaultdict(list)
    for message in sorted(sent, key=lambda message: message.number):
        cells[message.op, message.stage, message.lo].append(message)
    return list(cells.values())


def _message(
    times: PlannedTimes, group: Sequence[Message], links: _LinkNumbers, number: int, pipeline: int
) -> Transfer:
    """Devices that share a replica get copies of a message, which together take no longer than one."""
    op, stage, lo, hi = group[0][:4]
    flow = stage if op is Op.FORWARD else times.num_stages - 2 + stage
    return Transfer(
        number=number,
        num_parts=len(group),
        ranks=tuple(sorted({message.source for message in group})),
        seconds=times.message_s(op, stage, hi - lo),
        links=links.of_flow(flow, pipeline),
    )


def _sync(times: PlannedTimes, layout: RankLayout, links: _LinkNumbers, number: int, stage: int) -> Transfer:
    flow = 2 * (times.num_stages - 1) + stage
    ranks = tuple(role.rank for role in layout.roles if stage in role.stages)
    return Transfer(
        number=number,
        num_parts=len(ranks),
        ranks=ranks,
        seconds=times.sync_s[stage],
        links=tuple(link for pipeline in range(layout.num_pipelines) for link in links.of_flow(flow, pipeline)),
    )
