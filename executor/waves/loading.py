"""Builds one rank of a plan of virtual workers, each rank a process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from stagecut.executor.play.agreement import fingerprint
from stagecut.executor.play.batch import CountFunction, LossFunction
from stagecut.executor.play.build import SEED_STRIDE, Layers
from stagecut.executor.play.optimizers import DEFAULT, OptimizerFactory
from stagecut.executor.ranks.environment import TIMEOUT_S
from stagecut.executor.ranks.excepthook import install_excepthook
from stagecut.executor.ranks.world import World
from stagecut.executor.schedule.labels import ranks_label
from stagecut.executor.transport.objects import gather, gather_everywhere
from stagecut.executor.waves.carriers.server import WaveServer
from stagecut.executor.waves.connections import Connections
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.setting.execution import WaveExecution, WaveTraining
from stagecut.executor.waves.setting.layout import WaveRole
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.setting.schemes import Scheme
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.executor.waves.state import State, optimizer_states, restore, start_from, state_of
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan


@dataclass(frozen=True, kw_only=True)
class WaveRank:
    """One rank of a run: a stage of a worker, or a parameter server. All ranks call the same methods."""

    execution: WaveExecution
    role: WaveRole
    engine: StageWorker | WaveServer

    def train(self, data: WaveData, *, num_waves: int) -> WaveReport:
        """Train so many waves; a server serves meanwhile.

        Parameters
        ----------
        data
            Maps worker and minibatch to a batch; see :func:`stagecut.executor.waves.setting.data.sharded`.

        Raises
        ------
        StalenessError
            If a minibatch would compute with weights older than the plan allows.
        LossError
            If a loss is infinite or NaN.
        WaitError
            If another rank does not answer in time, or is gone.
        """
        return self.engine.train(data, num_waves=num_waves)

    def global_weights(self) -> dict[str, Tensor] | None:
        """Parameters and buffers by global name on rank 0, between two calls of `train`; None on other ranks.

        Parameters are those of the servers, with every update pushed; without servers, or if workers step with the
        gradients of all, they are those of worker 0. Buffers are those of worker 0.
        """
        gathered = gather(self.own_weights()) if dist.is_initialized() else [self.own_weights()]
        if gathered is None:
            return None
        servers = [own for own, role in zip(gathered, self.execution.layout.roles, strict=True) if role.worker is None]
        workers = [own for own, role in zip(gathered, self.execution.layout.roles, strict=True) if role.worker == 0]
        return dict(chain.from_iterable(own.items() for own in (*workers, *servers)))

    def state(self) -> State:
        """All that this rank needs to go on where it is, between two calls of `train`."""
        return state_of(self.engine)

    def restore(self, state: State) -> None:
        """Go on where the same rank of the same plan was."""
        restore(self.engine, state)

    def start_from(self, weights: Mapping[str, Tensor], states: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Begin with weights, buffers and optimizer states by global name, of whatever plan; all ranks call it."""
        start_from(self.engine, weights, states)

    def optimizer_states(self) -> dict[str, dict[str, Any]]:
        """What the optimizer keeps of each of this rank's weights, by global name; nothing on a server."""
        return {} if isinstance(self.engine, WaveServer) else optimizer_states(self.engine)

    def own_weights(self) -> dict[str, Tensor]:
        """What this rank adds to the global weights."""
        if isinstance(self.engine, WaveServer):
            return self.engine.trained_weights() if self.execution.has_global_weights else {}
        held = self.engine.held_weights() if self.role.worker == 0 else {}
        return {name: tensor.detach().cpu().clone() for name, tensor in held.items()}


def load_waves(  # noqa: PLR0913
    plan: WavePlan,
    layers: Layers,
    loss_fn: LossFunction | None = None,
    optimizer: OptimizerFactory = DEFAULT,
    *,
    scheme: Scheme | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    count: CountFunction | None = None,
    clip_norm: float | None = None,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    check_finite: bool = True,
    drop_workers: bool = False,
    problem: Problem | None = None,
    device: torch.device | None = None,
    world: World | None = None,
    timeout_s: float = TIMEOUT_S,
) -> WaveRank:
    """Build this rank's part of a plan of virtual workers; a collective of all ranks of `torch.distributed`.

    The ranks are, host by host in the cluster's order, the plan's devices and a parameter server if the host owns any
    layers.

    Parameters
    ----------
    layers
        A chain of layers, or a list with a module, or a function that builds one, for each layer. Modules are copied,
        and must be the same on all ranks.
    loss_fn
        loss_fn(output, targets) returns the mean over a minibatch, or its sum if `count` is set. None: the chain's own.
    optimizer
        Makes the optimizer of a stage from its parameters: what it changes is what workers exchange.
    scheme
        What is exchanged and when; None: as the plan has it, which is WSP, or one step a wave.
    scheduler
        Makes a learning-rate scheduler, stepped after each step of the optimizer.
    count
        Maps the targets of a minibatch to the number by which the sum of its losses is divided.
    clip_norm
        Largest norm of the whole model's gradient: of each minibatch of a worker, or with one step a wave, of the wave
        of all workers. None: not clipped.
    drop_workers
        Whether parameter servers go on without workers whose processes have died, from the next clock on: the others'
        gradients and means then count for all.
    problem
        What was planned for: its model must match the layers, its cluster gives the order of ranks.
    device
        Where stages compute; None: the CPU. Whatever travels does so through host memory, over gloo.
    world
        What :func:`stagecut.executor.ranks.world.join_world` returned: a rank that waits in vain then names the rank
        to blame.
    timeout_s
        How long a stage waits at a gate.

    Raises
    ------
    BadInputError
        If layers, plan and scheme do not go together, there are not as many ranks as the plan needs, or ranks have
        built different weights.
    """
    if world is None:
        install_excepthook()
    training = WaveTraining(
        loss_fn=loss_fn,
        optimizer=optimizer,
        count=count,
        clip_norm=clip_norm,
        autocast=autocast,
        seed=seed,
        check_finite=check_finite,
        scheduler=scheduler,
        scheme=scheme,
    )
    execution = WaveExecution.of(plan, layers, training, problem=problem)
    role = _join(execution)
    torch.manual_seed((seed + 1) * SEED_STRIDE - 1 - role.rank)  # dropout masks of its own
    connections = Connections(execution, role, drops=drop_workers, world=world, timeout_s=timeout_s)
    engine: StageWorker | WaveServer
    if role.worker is None:
        engine = connections.server()
    else:
        place = device or torch.device("cpu")
        engine = StageWorker(
            execution, role, transport=connections.transport(place), channel_of=connections.channel, device=place
        )
    if dist.is_initialized():
        _check_same_weights(execution, engine)
    return WaveRank(execution=execution, role=role, engine=engine)


def _join(execution: WaveExecution) -> WaveRole:
    layout = execution.layout
    num_ranks = dist.get_world_size() if dist.is_initialized() else 1
    if num_ranks != layout.world_size:
        num_servers = len(layout.servers)
        raise BadInputError(
            f"executor: the plan has {layout.world_size - num_servers} devices and {num_servers} parameter servers, "
            f"and needs one process for each, but there are {num_ranks}; start {layout.world_size}, for example with "
            f"torchrun --nproc-per-node {layout.world_size}"
        )
    return layout.roles[dist.get_rank() if dist.is_initialized() else 0]


def _check_same_weights(execution: WaveExecution, engine: StageWorker | WaveServer) -> None:
    """Refuse ranks that have built other weights than the first that holds the layer."""
    own = engine.trained_weights()
    names = [layer.name for layer in execution.chain.layers]
    prints = {
        name: fingerprint([tensor for _, tensor in sorted(held.items())])
        for name in names
        if (held := {key: tensor for key, tensor in own.items() if key.startswith(f"{name}.")})
    }
    gathered = gather_everywhere(prints)
    for name in names:
        holders = [(rank, each[name]) for rank, each in enumerate(gathered) if name in each]
        others = [rank for rank, print_ in holders if print_ != holders[0][1]]
        if others:
            raise BadInputError(
                f"executor: layer {name!r} has other weights on {ranks_label(others)} than on rank {holders[0][0]}: "
                "seed all ranks alike, or pass functions that build the layers"
            )
