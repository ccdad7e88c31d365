"""Builds the shards of a plan."""

import torch

from stagecut.executor.waves.carriers.flat import FlatLayout
from stagecut.executor.waves.carriers.shard import Shard
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Member


def build_shard(execution: WaveExecution, owner: str, device: torch.device) -> tuple[Shard, FlatLayout]:
    """The shard of a host with its initial weights on a device, and where each parameter lies in it.

    The layers of a stage follow one another, so what it exchanges with a shard is a slice of the shard's vector.
    """
    owned = execution.layout.owned(owner)
    modules = execution.build(owned, device)
    trained = {layer: execution.trained([layer], modules) for layer in owned}
    layout = FlatLayout({name: parameter for own in trained.values() for name, parameter in own.items()})
    sizes = {layer: sum(parameter.numel() for parameter in own.values()) for layer, own in trained.items()}
    members: dict[Member, slice] = {}
    for index, worker in enumerate(execution.plan.workers):
        for number, stage in enumerate(worker.stages):
            before = sum(size for layer, size in sizes.items() if layer < stage.start)
            own = sum(size for layer, size in sizes.items() if stage.start <= layer < stage.stop)
            if own:
                members[index, number] = slice(before, before + own)
    weights = layout.join(layout_values(trained))
    samples = execution.plan.samples_per_wave
    shares = {index: worker.samples_per_wave / samples for index, worker in enumerate(execution.plan.workers)}
    return Shard(weights, members, execution.scheme, shares=shares), layout


def layout_values(trained: dict[int, dict[str, torch.nn.Parameter]]) -> dict[str, torch.Tensor | None]:
    """All parameters by name."""
    return {name: parameter for own in trained.values() for name, parameter in own.items()}
