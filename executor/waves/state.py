"""The state of a rank between two calls of `train`, as numbers, text, tensors and containers of them.

Restored on the same rank of the same plan, training goes on as if it had never stopped. Under another plan, of which
other ranks hold other layers, weights and optimizer state are restored by global name, with clocks of zero.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stagecut.executor.waves.carriers.channels import AllReduceChannel, Channel
from stagecut.executor.waves.carriers.server import WaveServer
from stagecut.executor.waves.carriers.shard import OuterWeights, Pulled, Shard
from stagecut.executor.waves.exchange import PartExchange
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.executor.waves.weights import Version

State = dict[str, Any]
"""Copies, on the CPU."""


def optimizer_states(worker: StageWorker) -> dict[str, dict[str, Any]]:
    """What the optimizer keeps of each weight, by global name."""
    states = worker.optimizer.state
    return {name: _copied(states.get(parameter, {})) for name, parameter in worker.weights.master.items()}


def state_of(engine: StageWorker | WaveServer) -> State:
    """The whole state of a rank."""
    if isinstance(engine, WaveServer):
        return shard_state(engine.shard)
    return {
        "num_waves": engine.num_waves,
        "weights": _copied({name: parameter.detach() for name, parameter in engine.module.global_parameters()}),
        "buffers": _copied(dict(engine.module.global_buffers())),
        "optimizer": _optimizer_state(engine.optimizer),
        "scheduler": None if engine.scheduler is None else engine.scheduler.state_dict(),
        "versions": [
            [minibatch, version.own_updates, version.clock, _copied(version.tensors) if engine.weights.copies else {}]
            for minibatch, version in engine.weights.versions.items()
        ],
        "parts": [_part_state(part) for part in engine.exchange.parts],
    }


def restore(engine: StageWorker | WaveServer, state: State) -> None:
    """Go on where a rank of the same plan was."""
    if isinstance(engine, WaveServer):
        restore_shard(engine.shard, state)
        return
    engine.num_waves = state["num_waves"]
    _overwrite(dict(engine.module.global_parameters()), state["weights"])
    _overwrite(dict(engine.module.global_buffers()), state["buffers"])
    _restore_optimizer(engine.optimizer, state["optimizer"])
    if engine.scheduler is not None:
        engine.scheduler.load_state_dict(state["scheduler"])
    device = engine.device
    engine.weights.versions = {
        minibatch: Version(
            tensors={
                **engine.weights.master,
                **{name: tensor.clone().to(device).requires_grad_() for name, tensor in tensors.items()},
            },
            own_updates=own_updates,
            clock=clock,
        )
        for minibatch, own_updates, clock, tensors in state["versions"]
    }
    for part, own in zip(engine.exchange.parts, state["parts"], strict=True):
        _restore_part(part, own, device)


def shard_state(shard: Shard) -> State:
    """The whole state of a parameter server."""
    return {
        "weights": shard.weights.clone(),
        "clock": shard.clock,
        "arrived": [[*member, count] for member, count in shard.arrived.items()],
        "fetched": [[*member, count] for member, count in shard.fetched.items()],
        "waves": {wave: _copied(parts) for wave, parts in shard.waves.items()},
        "outer": _outer_state(shard.outer),
    }


def restore_shard(shard: Shard, state: State) -> None:
    """Go on where the shard of the same host was."""
    shard.weights.copy_(state["weights"])
    shard.clock = state["clock"]
    shard.arrived = {(worker, stage): count for worker, stage, count in state["arrived"]}
    shard.fetched = {(worker, stage): count for worker, stage, count in state["fetched"]}
    shard.waves = {wave: _copied(parts) for wave, parts in state["waves"].items()}
    _restore_outer(shard.outer, state["outer"])


def start_from(
    engine: StageWorker | WaveServer,
    weights: Mapping[str, Tensor],
    states: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Begin a training with weights, buffers and optimizer states by global name, in place of the initial ones.

    Call it on all ranks before they train; what this rank does not hold is passed over.
    """
    if isinstance(engine, WaveServer):
        own = {name: weights[name] for name in engine.layout.names}
        engine.shard.weights.copy_(engine.layout.join(own))
        _set_outer(engine.shard.outer, engine.shard.weights)
        return
    held = {**dict(engine.module.global_parameters()), **dict(engine.module.global_buffers())}
    _overwrite(held, {name: weights[name] for name in held})
    for name, parameter in engine.weights.master.items():
        if states and name in states:
            engine.optimizer.state[parameter] = _copied(states[name], parameter.device)
    for part in engine.exchange.parts:
        vector = part.layout.join(dict(engine.weights.master))
        part.base = vector if part.base.numel() else part.base
        if isinstance(part.channel, AllReduceChannel):
            _set_outer(part.channel.outer, vector)
    engine.restart()


def _part_state(part: PartExchange) -> State:
    pulled = part.pulled
    return {
        "clock": part.clock,
        "base": part.base.clone().cpu(),
        "own": _copied(part.own),
        "gradients": _copied(part.gradients),
        "pulled": None if pulled is None else [pulled.clock, pulled.content.clone().cpu()],
        "channel": _channel_state(part.channel),
    }


def _restore_part(part: PartExchange, state: State, device: torch.device) -> None:
    pulled = state["pulled"]
    part.clock, part.base, part.own = state["clock"], state["base"].clone().to(device), _copied(state["own"], device)
    part.gradients = _copied(state.get("gradients", []), device)  # earlier versions kept none
    part.pulled = None if pulled is None else Pulled(clock=pulled[0], content=pulled[1].clone().to(device))
    if isinstance(part.channel, AllReduceChannel):
        own = state["channel"]
        part.channel.restore(_copied(own["own"], device), _copied(own["totals"], device))
        _restore_outer(part.channel.outer, own["outer"])


def _channel_state(channel: Channel) -> State | None:
    if not isinstance(channel, AllReduceChannel):
        return None
    own, totals = channel.unasked()
    return {"own": _copied(own), "totals": _copied(totals), "outer": _outer_state(channel.outer)}


def _outer_state(outer: OuterWeights | None) -> State | None:
    if outer is None:
        return None
    return {"weights": outer.weights.detach().clone().cpu(), "optimizer": _optimizer_state(outer.optimizer)}


def _restore_outer(outer: OuterWeights | None, state: State | None) -> None:
    if outer is not None and state is not None:
        _set_outer(outer, state["weights"])
        _restore_optimizer(outer.optimizer, state["optimizer"])


@torch.no_grad()
def _set_outer(outer: OuterWeights | None, weights: Tensor) -> None:
    if outer is not None:
        outer.weights.copy_(weights)


def _optimizer_state(optimizer: Optimizer) -> State:
    """Torch's own form, which counts parameters from 0."""
    state: State = _copied(optimizer.state_dict())
    return state


def _restore_optimizer(optimizer: Optimizer, state: State) -> None:
    optimizer.load_state_dict(_copied(state))


@torch.no_grad()
def _overwrite(held: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in held.items():
        tensor.copy_(values[name])


def _copied(value: Any, device: torch.device | None = None) -> Any:
    """The same containers with copies of all tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone().to(device or torch.device("cpu"))
    if isinstance(value, Mapping):
        return {key: _copied(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(each, device) for each in value)
    return value
