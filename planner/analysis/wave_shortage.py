"""Why no virtual worker fits: the memory that is short."""

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.job import AUTO, Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.units import format_bytes
from stagecut.planner.cost.wave_costs import WaveCostModel


def wave_shortage(problem: Problem) -> str:
    """The layer that lacks most on the device type that suits it best, or what all layers together need."""
    waves, model = problem.job.waves, problem.model
    assert waves is not None
    in_flight = 1 if waves.in_flight == AUTO else waves.in_flight
    placements = [
        Placement(server_class=index, island=island)
        for index, server in enumerate(problem.cluster.servers)
        for island in range(len(server.islands))
    ]
    costs = WaveCostModel(problem)
    types = [costs.stages.device_type(placement) for placement in placements]
    alone = [_alone_bytes(costs, placement, in_flight) for placement in placements]
    needed = np.array([each.sum(axis=0) for each in alone])
    short = needed - np.array([kind.memory_bytes for kind in types])[:, np.newaxis]
    best = short.argmin(axis=0)  # by layer
    worst = int(short.min(axis=0).argmax())
    setting = f"with {in_flight} minibatch{'' if in_flight == 1 else 'es'} of {problem.job.micro_batches[0]} in flight"
    if short[best[worst], worst] > 0:
        kind, num_bytes = types[best[worst]], needed[best[worst], worst]
        sizes = f"{format_bytes(num_bytes)} on {kind.name}, which has {format_bytes(kind.memory_bytes)}"
        lacking = format_bytes(num_bytes - kind.memory_bytes)
        return f"{setting}, layer {model.layers[worst].name!r} alone needs {sizes}: {lacking} short"
    kept = format_bytes(float(alone[0][0].sum()))
    sizes = ", ".join(f"{kind.name} {_size(kind.memory_bytes)}" for kind in types)
    return f"{setting}, every worker keeps {kept} besides activations; a device has: {sizes}"


def _alone_bytes(costs: WaveCostModel, placement: Placement, in_flight: int) -> Floats:
    """Static bytes of each layer as a last stage of its own, and what it needs besides, of shape (2, L)."""
    job, layers = costs.problem.job, np.arange(costs.problem.model.num_layers)
    assert job.waves is not None
    modes = {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}[job.recompute]
    stages = [
        costs.stage_costs(
            placement,
            minibatch=job.micro_batches[0],
            in_flight=in_flight,
            local_step=job.waves.local_step,
            recompute=recompute,
            start=layers,
            stop=layers + 1,
        )
        for recompute in modes
    ]
    besides = np.min([each.saved_bytes + each.working_bytes for each in stages], axis=0)
    return np.stack([stages[0].static_bytes, besides])


def _size(num_bytes: float) -> str:
    return "unlimited" if np.isinf(num_bytes) else format_bytes(num_bytes)
