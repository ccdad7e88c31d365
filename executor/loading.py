"""Builds the pipeline of a rank from a plan and layers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from stagecut.executor.execution_plan import AnyPlan, ExecutionPlan, Training
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import CountFunction, LossFunction
from stagecut.executor.play.build import SEED_STRIDE, Layers, build_stages, share_tied
from stagecut.executor.play.context import RankContext
from stagecut.executor.play.gradients import groups_of
from stagecut.executor.play.optimizers import DEFAULT, OptimizerFactory, build_optimizer, build_zero1
from stagecut.executor.play.pace import Pace
from stagecut.executor.play.stage import StageModule
from stagecut.executor.play.tensor_parallel import share_layer
from stagecut.executor.ranks.excepthook import install_excepthook
from stagecut.executor.ranks.watched_transport import WatchedTransport
from stagecut.executor.ranks.world import World
from stagecut.executor.schedule.rank_layout import Role
from stagecut.executor.sharding.plans import PlannedStage
from stagecut.executor.transport.distributed import DistributedTransport
from stagecut.executor.transport.interface import TORCH_DISTRIBUTED, Distributed, Transport
from stagecut.executor.transport.threads import Hub
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.simulator.action_lists import Action

PaceMaker = Callable[[Role], Pace]
"""Makes the pace of a rank."""
Groups = Mapping[tuple[int, ...], dist.ProcessGroup]


def load(  # noqa: PLR0913
    plan: AnyPlan,
    layers: Layers,
    loss_fn: LossFunction | None = None,
    optimizer: OptimizerFactory = DEFAULT,
    *,
    count: CountFunction | None = None,
    clip_norm: float | None = None,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    check_batches: bool = True,
    check_finite: bool = True,
    actions: Sequence[Sequence[Action]] | None = None,
    shares: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
    pace: PaceMaker | None = None,
    world: World | None = None,
) -> Pipeline:
    """Build this rank's part of a plan; a collective of all ranks of `torch.distributed`.

    Parameters
    ----------
    plan
        A plan, a plan file, or the path of one.
    layers
        A chain of layers, or a list with a module, or a function that builds one, for each layer of the plan's model.
        A rank builds its own layers only; their initial values depend on `seed` alone, not on the partition.
        Ready-made modules whose values differ between copies take over those of the first copy, with a warning.
    loss_fn
        loss_fn(output, targets) returns the mean over the samples it is given, or their sum if `count` is set.
        None: the chain's own loss.
    optimizer
        Makes an optimizer from parameters, for example `functools.partial(torch.optim.SGD, lr=0.1)`. If the plan's job
        uses ZeRO-1, the optimizer state is sharded over the copies of a stage.
    count
        Maps the targets of the global batch to the number that the sum of the losses is divided by, for example
        the number of tokens that are not padding. None: all samples weigh the same.
    clip_norm
        Largest norm of the whole model's gradient.
    autocast
        Data type for torch's autocast; None: no autocast.
    check_batches
        Whether to compare the batches of all ranks before every call: one pass over them and a small message.
    check_finite
        Whether to stop at a loss that is infinite or NaN before it reaches the weights.
    actions
        Action lists to play instead of the plan's schedule, one for each device group.
    shares
        For each device group, the proportions in which its replicas split micro-batches; None: evenly.
    device
        None: the current GPU if the backend is NCCL, else the CPU.
    pace
        None: full speed.
    world
        What :func:`stagecut.executor.ranks.world.join_world` returned: a rank that waits in vain then names the rank
        to blame.
        None: it says only that it timed out.

    Raises
    ------
    BadInputError
        If the layers do not match the plan, the number of ranks is not the plan's number of devices, the action
        lists cannot be played, or there is no loss.
    """
    if world is None:
        install_excepthook()
    training = Training(
        loss_fn=loss_fn,
        optimizer=optimizer,
        count=count,
        clip_norm=clip_norm,
        autocast=autocast,
        seed=seed,
        check_batches=check_batches,
        check_finite=check_finite,
    )
    execution = ExecutionPlan.of(plan, layers, training, actions=actions, shares=shares)
    device = device or _own_device()
    role, groups, transport = _join(execution, device)
    context = RankContext(
        layout=execution.layout,
        role=role,
        transport=transport if world is None else WatchedTransport(transport, world),
        device=device,
    )
    pipeline = assemble(execution, context, groups=groups, pace=pace(role) if pace else Pace())
    pipeline.sync_initial_weights()
    _seed_dropout(execution, context)
    return pipeline


def assemble(
    execution: ExecutionPlan,
    context: RankContext,
    *,
    groups: Groups,
    pace: Pace,
    lock: AbstractContextManager[object] | None = None,
) -> Pipeline:
    """One rank's pipeline.

    Parameters
    ----------
    groups
        Process groups by ranks, for torch's own tensor parallelism and ZeRO-1, and for sharded stages.
    lock
        Held while the rank computes; None: ranks may compute at the same time.
    """
    stages = build_stages(
        execution.chain, execution.plan, context.role, seed=execution.training.seed, device=context.device
    )
    _share_layers(execution, context, stages, groups)
    parameters = _named(stages, share_tied(execution.chain, stages))
    return Pipeline(
        execution=execution,
        context=context,
        stages=tuple(stages),
        parameters=parameters,
        optimizer=_optimizer(execution, context.role, parameters, groups),
        pace=pace,
        lock=lock or nullcontext(),
    )


def _join(execution: ExecutionPlan, device: torch.device) -> tuple[Role, Groups, Transport]:
    """Connect to the other processes; a plan for a single device needs none."""
    layout = execution.layout
    num_ranks = dist.get_world_size() if dist.is_initialized() else 1
    if num_ranks != layout.world_size:
        raise BadInputError(
            f"executor: the plan has {layout.world_size} devices, and needs one process for each, but there are "
            f"{num_ranks}; start {layout.world_size}, for example with torchrun --nproc-per-node {layout.world_size}"
        )
    if not dist.is_initialized():
        return layout.roles[0], {}, Hub(1).transport(0)
    tagged = device.type != "cuda" or "nccl" not in dist.get_backend_config()
    transport = transport_of(execution, tagged=tagged)
    transport.connect(device)
    return layout.roles[dist.get_rank()], transport.groups, transport


def transport_of(
    execution: ExecutionPlan, *, tagged: bool, distributed: Distributed = TORCH_DISTRIBUTED
) -> DistributedTransport:
    """The transport of a plan over torch.distributed or a stand-in.

    Parameters
    ----------
    tagged
        Whether messages may overtake each other, as over gloo.
    """
    groups = groups_of(execution.layout, execution.tied)
    pairs = () if tagged else _pairs(execution)
    return DistributedTransport(tagged=tagged, groups=groups, pairs=pairs, distributed=distributed)


def _pairs(execution: ExecutionPlan) -> list[tuple[int, int]]:
    """Source and target of all messages between ranks, ascending."""
    turns = (
        own
        for pipeline in range(execution.layout.num_pipelines)
        for own in execution.turns(pipeline, training=True).values()
    )
    sends = (message for own in turns for turn in own for message in turn.sends if not message.is_local)
    return sorted({(message.source, message.target) for message in sends})


def _own_device() -> torch.device:
    if dist.is_initialized() and "nccl" in dist.get_backend_config():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _seed_dropout(execution: ExecutionPlan, context: RankContext) -> None:
    """Different dropout masks on every replica and stage, equal ones on devices that share a replica.

    All ranks use the seed of rank 0: users may pass a different one on each rank.
    """
    role = context.role
    first = execution.layout.rank_of(role.pipeline, role.stages[0], replica=role.replica, tensor_rank=0)
    seed = context.transport.broadcast(execution.training.seed, 0)
    assert isinstance(seed, int)
    torch.manual_seed((seed + 1) * SEED_STRIDE - 1 - first)


def _share_layers(
    execution: ExecutionPlan, context: RankContext, stages: Sequence[StageModule], groups: Groups
) -> None:
    ranks = execution.layout.sharing_ranks(context.role)
    if len(ranks) == 1:
        return
    for stage in stages:
        if planned := execution.sharded[stage.index]:
            _shard_stage(execution, context, stage, planned, groups)
            continue
        first = execution.plan.stages[stage.index].start
        for offset, module in enumerate(stage.layers):
            layer = execution.chain.layers[first + offset]
            if layer.tensor_parallel is not None and ranks not in groups:
                raise BadInputError("executor: tensor parallelism needs a process for each device")
            if layer.tensor_parallel is not None:
                stage.layers[offset] = share_layer(module, layer, groups[ranks], context.device)


def _shard_stage(
    execution: ExecutionPlan, context: RankContext, stage: StageModule, planned: PlannedStage, groups: Groups
) -> None:
    """Divide the operators of a stage among the ranks of a replica."""
    from stagecut.executor.sharding.place import MeshPlace  # DTensor takes more than a second to import
    from stagecut.executor.sharding.stage import shard_stage

    lines = execution.layout.lines(context.role, stage.index)
    if any(line not in groups for line in lines):
        raise BadInputError("executor: a sharded stage needs a process for each device")
    sizes = execution.layout.meshes[stage.index] or ()
    grid = torch.tensor(execution.layout.sharing_ranks(context.role)).view(sizes).permute(planned.order)
    ranks = tuple(grid.flatten().tolist())
    place = MeshPlace(
        mesh=planned.mesh,
        ranks=ranks,
        index=ranks.index(context.role.rank),
        groups=tuple(groups[lines[axis]] for axis in planned.order),
        device=context.device,
    )
    is_last = stage.index == execution.layout.num_stages - 1
    names = [layer.name for layer in execution.chain.layers]
    ties = {(names[tie.copy[0]], tie.copy[1]): (names[tie.owner[0]], tie.owner[1]) for tie in execution.chain.ties}
    stage.division = shard_stage(stage, planned.layers, place, ties=ties, is_last=is_last)


def _named(stages: Sequence[StageModule], owners: Mapping[str, str]) -> dict[int, dict[str, nn.Parameter]]:
    """Parameters of each stage by global name; tied ones once, under their owner's name."""
    named: dict[int, dict[str, nn.Parameter]] = {}
    seen: set[str] = set()
    for stage in stages:
        own = ((owners.get(name, name), parameter) for name, parameter in stage.global_parameters())
        named[stage.index] = {name: parameter for name, parameter in own if name not in seen}
        seen |= set(named[stage.index])
    return named


def _optimizer(
    execution: ExecutionPlan, role: Role, parameters: Mapping[int, Mapping[str, nn.Parameter]], groups: Groups
) -> Optimizer:
    every = {name: parameter for own in parameters.values() for name, parameter in own.items()}
    copies = execution.layout.copies(role.stages[0], role.tensor_rank)
    if every and execution.zero1 and len(copies) > 1 and copies in groups:
        return build_zero1(every, execution.training.optimizer, groups[copies])
    return build_optimizer(every, execution.training.optimizer)
