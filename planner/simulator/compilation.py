"""Compilation of action lists into the graph of one iteration."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.sublot_sizes import sublot_cuts
from stagecut.planner.cost.plan_costs import SublotCut, TaskKind
from stagecut.planner.simulator.action_lists import (
    Action,
    Op,
    interleaved_actions,
    pipeline_sizes,
    stage_table,
    sublot_sizes,
)
from stagecut.planner.simulator.event_loop import NO_DEADLINE, UNKNOWN, game_of, links_of, play
from stagecut.planner.simulator.iteration_graph import NONE, IterationGraph, with_parts


@dataclass(frozen=True, kw_only=True)
class _Actions:
    """Action lists as columns, device group after device group."""

    device: Ints
    """Device group of each stage."""
    samples: int
    kind: Ints
    stage: Ints
    lo: Ints
    hi: Ints
    last: Ints
    """Last action of each device group."""

    @property
    def num_stages(self) -> int:
        return len(self.device)

    def of(self, kind: TaskKind, stage: int) -> Ints:
        """Actions of one stage and kind, by first sample."""
        order, cuts = self._by_stage
        group = 2 * stage + kind
        return order[cuts[group] : cuts[group + 1]]

    @cached_property
    def _by_stage(self) -> tuple[Ints, Ints]:
        """All actions by stage, kind and first sample, and where each stage and kind begins."""
        group = 2 * self.stage + self.kind
        order = np.lexsort((self.lo, group))
        return order, np.searchsorted(group[order], np.arange(2 * self.num_stages + 1))

    def name(self, task: int) -> str:
        """The action in words."""
        word = TaskKind(int(self.kind[task])).name.lower()
        return f"{word} of samples [{self.lo[task]}, {self.hi[task]})"


class MessageSizes(NamedTuple):
    """Samples per message over each of the S - 1 boundaries; None: the part of one action that one action takes."""

    forward: tuple[int | None, ...]
    backward: tuple[int | None, ...]


class _Messages(NamedTuple):
    """Messages as columns, sorted by (producer, first sample)."""

    producer: Ints
    """Action that ends last of those whose samples the message holds."""
    lo: Ints
    hi: Ints


@lru_cache(maxsize=256)
def pipeline_graph(
    warmup_depth: tuple[int, ...], num_microbatches: int, micro_batch: int = 1, num_halved: tuple[int, ...] = ()
) -> IterationGraph:
    """Graph of a pipeline in which every stage has its own devices; see :func:`pipeline_sizes`."""
    stages = pipeline_sizes(warmup_depth, num_microbatches, micro_batch, num_halved)
    graph = _compile([stage_table(stage, sizes) for stage, sizes in enumerate(stages)])
    return with_parts(graph, micro_batch) if num_halved else graph


@lru_cache(maxsize=256)
def sublot_graph(cut: SublotCut) -> IterationGraph:
    """Graph of a pipeline whose processes have sublot sizes of their own."""
    messages = MessageSizes(forward=cut.forward_messages, backward=cut.backward_messages)
    return with_parts(_compile([stage_table(*stage) for stage in enumerate(sublot_sizes(cut))], messages))


@lru_cache
def interleaved_graph(num_devices: int, chunks: int, num_microbatches: int, micro_batch: int = 1) -> IterationGraph:
    """Graph of interleaved 1F1B; see :func:`interleaved_actions`."""
    return compile_actions(interleaved_actions(num_devices, chunks, num_microbatches, micro_batch))


def compile_actions(lists: Sequence[Sequence[Action]], sizes: MessageSizes | None = None) -> IterationGraph:
    """Compile one action list per device group; all actions of a stage must be in one list.

    A message is the part of an action's samples that a single action of the next stage (for gradients:
    of the previous stage) takes, so equal micro-batches travel as one message each; or, with a size of
    its own, a part of one action or the samples of several. Messages of a flow arrive in the order they
    are sent, so an action waits only for the last of those it needs.

    Raises
    ------
    BadInputError
        If a stage is in two lists, if its forwards or its backwards do not cover the same samples
        exactly once, if a backward precedes a forward of its samples, or if device groups wait for
        each other forever.
    """
    return _compile([_table(actions) for actions in lists], sizes)


def _compile(tables: Sequence[Ints], sizes: MessageSizes | None = None) -> IterationGraph:
    """The same from kind, stage, lo and hi of the actions of every device group, shape (4, actions) each."""
    actions = _columns(tables)
    messages, need = _messages(actions, sizes)
    before = np.arange(len(actions.kind)) - 1
    before[np.append(0, actions.last[:-1] + 1)] = NONE
    graph = _assemble(actions, messages, before=before, need=need)
    _check_end(graph, actions)
    return graph


def _table(actions: Sequence[Action]) -> Ints:
    rows = [(_kind(action), action.stage, action.lo, action.hi) for action in actions]
    return np.array(rows, dtype=np.int64).reshape(-1, 4).T


def _columns(tables: Sequence[Ints]) -> _Actions:
    lengths = [table.shape[1] for table in tables]
    if not lengths or min(lengths) == 0:
        raise BadInputError("schedule: every stage must have actions, and there must be a stage")
    kind, stages, lo, hi = np.concatenate(tables, axis=1)
    actions = _Actions(
        device=_devices(stages, np.repeat(np.arange(len(tables)), lengths)),
        samples=int(hi.max()),
        kind=kind,
        stage=stages,
        lo=lo,
        hi=hi,
        last=np.cumsum(lengths) - 1,
    )
    for stage in range(actions.num_stages):
        for kind in (TaskKind.FORWARD, TaskKind.BACKWARD):
            _check_coverage(actions, stage, kind)
        forwards, backwards = actions.of(TaskKind.FORWARD, stage), actions.of(TaskKind.BACKWARD, stage)
        needed, needing = _overlaps(actions.lo[forwards], actions.lo[backwards])
        late = backwards[needing][forwards[needed] > backwards[needing]]
        if len(late):
            name = actions.name(late[0])
            raise BadInputError(f"schedule: stage {stage} lists the {name} before a forward of its samples")
    return actions


def _kind(action: Action) -> TaskKind:
    kinds = {Op.FORWARD: TaskKind.FORWARD, Op.BACKWARD: TaskKind.BACKWARD}
    if action.op not in kinds:
        raise BadInputError(f"schedule: stage {action.stage} has half a backward ({action.op}), which is not simulated")
    return kinds[action.op]


def _devices(stage: Ints, device: Ints) -> Ints:
    """Device group of each stage, from the stage and device group of each action."""
    devices = np.zeros(stage.max() + 1, dtype=np.int64)
    devices[stage] = device
    torn = stage[devices[stage] != device]
    if len(torn):
        raise BadInputError(f"schedule: the actions of stage {torn[0]} must be in one list")
    return devices


def _check_coverage(actions: _Actions, stage: int, kind: TaskKind) -> None:
    tasks = actions.of(kind, stage)
    cuts = np.append(actions.lo[tasks], actions.samples)
    tiled = len(tasks) > 0 and cuts[0] == 0 and np.array_equal(cuts[1:], actions.hi[tasks])
    if not tiled or not np.all(cuts[1:] > cuts[:-1]):
        got = ", ".join(f"[{actions.lo[task]}, {actions.hi[task]})" for task in tasks[:8])
        raise BadInputError(
            f"schedule: the {kind.name.lower()}s of stage {stage} must cover the samples "
            f"[0, {actions.samples}) exactly once, got {got or 'none'}"
        )


def _overlaps(first_lo: Ints, second_lo: Ints) -> tuple[Ints, Ints]:
    """Indices of all overlapping pairs of parts of two partitions of the samples, each given by its first samples."""
    lo = np.union1d(first_lo, second_lo)
    first, second = (np.searchsorted(own_lo, lo, side="right") - 1 for own_lo in (first_lo, second_lo))
    return first, second


def _messages(actions: _Actions, sizes: MessageSizes | None) -> tuple[_Messages, Ints]:
    """All messages, and for every action the task number of the last message it needs, `NONE` if it needs none."""
    inner, num_actions = range(actions.num_stages - 1), len(actions.kind)
    stated = sizes or MessageSizes(forward=(None,) * len(inner), backward=(None,) * len(inner))
    columns, needs, first = [np.zeros((3, 0), dtype=np.int64)], [np.zeros((2, 0), dtype=np.int64)], 0
    flows = [(TaskKind.FORWARD, s, s + 1, stated.forward[s]) for s in inner]
    flows += [(TaskKind.BACKWARD, s + 1, s, stated.backward[s]) for s in inner]
    for kind, sender, receiver, size in flows:
        producers, consumers = actions.of(kind, sender), actions.of(kind, receiver)
        made_lo, taken_lo = actions.lo[producers], actions.lo[consumers]
        lo = np.union1d(made_lo, taken_lo) if size is None else sublot_cuts(actions.samples, size)[:-1]
        producer = np.zeros_like(lo)
        message, maker = _overlaps(lo, made_lo)
        np.maximum.at(producer, message, producers[maker])
        columns.append(np.stack((producer, lo, np.append(lo[1:], actions.samples))))
        message, taker = _overlaps(lo, taken_lo)
        needs.append(np.stack((first + message, consumers[taker])))
        first += len(lo)
    table, (message, consumer) = np.concatenate(columns, axis=1), np.concatenate(needs, axis=1)
    order = np.lexsort((table[1], table[0]))
    number, need = np.empty_like(order), np.full(num_actions, NONE)
    number[order] = num_actions + np.arange(len(order))
    # Messages of a flow arrive in the order they are sent, so an action waits only for the last of those it needs.
    np.maximum.at(need, consumer, number[message])
    return _Messages(*table[:, order]), need


def _assemble(actions: _Actions, messages: _Messages, *, before: Ints, need: Ints) -> IterationGraph:
    """Number messages, all-reduces and optimizer steps after the actions."""
    num_actions, num_messages = len(actions.kind), len(messages.producer)
    stages = np.arange(actions.num_stages)
    nothing = np.full_like(stages, NONE)
    start, stop = np.zeros_like(stages), np.full_like(stages, actions.samples)
    kind, sender = actions.kind[messages.producer], actions.stage[messages.producer]
    flow = np.where(kind == TaskKind.FORWARD, sender, actions.num_stages - 2 + sender)
    tail = _tail(actions, num_actions + num_messages)
    predecessors = (
        np.concatenate((before, messages.producer, tail)),
        np.concatenate((need, _previous(flow, num_actions), nothing, nothing)),
    )
    return IterationGraph(
        num_stages=actions.num_stages,
        num_devices=len(actions.last),
        device=actions.device,
        num_actions=num_actions,
        num_messages=num_messages,
        kind=np.concatenate((actions.kind, kind + 2, np.full_like(stages, 4), np.full_like(stages, 5))),
        stage=np.concatenate((actions.stage, sender, stages, stages)),
        lo=np.concatenate((actions.lo, messages.lo, start, start)),
        hi=np.concatenate((actions.hi, messages.hi, stop, stop)),
        predecessors=np.stack(predecessors, axis=1),
        flow=np.concatenate((np.full(num_actions, NONE), flow, 2 * actions.num_stages - 2 + stages, nothing)),
    )


def _tail(actions: _Actions, first_sync: int) -> Ints:
    """Predecessor of each all-reduce, then of each optimizer step."""
    device, first_update = actions.device, first_sync + actions.num_stages
    last_sync = np.zeros_like(actions.last)
    # Of several stages on a device group the last one counts: numpy assigns in order.
    last_sync[device] = first_sync + np.arange(actions.num_stages)
    sync, update = _previous(device, first_sync), _previous(device, first_update)
    return np.concatenate(
        (np.where(sync == NONE, actions.last[device], sync), np.where(update == NONE, last_sync[device], update))
    )


def _previous(group: Ints, first: int) -> Ints:
    """Previous task in the group of each task, for tasks numbered from `first`."""
    order = np.argsort(group, kind="stable")
    previous = np.full(len(group), NONE)
    same = group[order[1:]] == group[order[:-1]]
    previous[order[1:][same]] = first + order[:-1][same]
    return previous


def _check_end(graph: IterationGraph, actions: _Actions) -> None:
    """Play the graph in no time: device groups run their lists until they have to wait."""
    starts_s, ends_s = np.zeros(graph.num_tasks), np.empty(graph.num_tasks + 1)
    play(
        game_of(graph),
        links_of((), graph.num_flows),
        np.zeros((1, graph.cell.max() + 1)),
        starts_s,
        ends_s,
        NO_DEADLINE,
    )
    left = np.flatnonzero(ends_s[: graph.num_actions] == UNKNOWN)
    if len(left):
        _, first = np.unique(actions.device[actions.stage[left]], return_index=True)
        stuck = [f"stage {actions.stage[task]} at the {actions.name(task)}" for task in left[first]]
        raise BadInputError(f"schedule: stages wait for each other forever: {', '.join(stuck)}")
