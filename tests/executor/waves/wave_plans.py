"""Small plans of virtual workers, layers for them, and the same training in plain torch."""

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from stagecut.planner.core.plan import Stage
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep

WIDTH = 3
MSE = nn.functional.mse_loss


def worker_of(
    name: str,
    cuts: Sequence[int],
    *,
    minibatch: int = 2,
    in_flight: int = 1,
    wave: int | None = None,
    recompute: bool = False,
) -> VirtualWorker:
    """A worker whose stages are the layers between cuts, as deep as plans have them: min(N_m, 2 (S - s) - 1)."""
    num_stages = len(cuts) - 1
    stages = tuple(
        Stage(
            start=cuts[index],
            stop=cuts[index + 1],
            devices=(f"{name}/{index}",),
            recompute=recompute,
            warmup_depth=min(in_flight, 2 * (num_stages - index) - 1),
            forward_micro_batch=minibatch,
            backward_micro_batch=minibatch,
        )
        for index in range(num_stages)
    )
    return VirtualWorker(stages=stages, minibatch=minibatch, in_flight=in_flight, wave=wave or in_flight)


def plan_of(*workers: VirtualWorker, served: bool = True, **choices: object) -> WavePlan:
    """A plan whose layers are owned by two hosts in turn, or summed by all-reduce."""
    num_layers = workers[0].stages[-1].stop
    owners = tuple(f"host{layer % 2}" for layer in range(num_layers)) if served else ()
    carrier = Carrier.PARAMETER_SERVER if served else Carrier.DELAYED_ALL_REDUCE
    return WavePlan(workers=workers, carrier=carrier, owners=owners, **choices)


def synchronous_plan(draw: random.Random, *, num_layers: int) -> WavePlan:
    """One to three unlike workers that make one step a wave."""

    def worker(index: int) -> VirtualWorker:
        cuts = (0, *sorted(draw.sample(range(1, num_layers), draw.randint(0, 2))), num_layers)
        size, recompute = draw.randint(1, 3), draw.random() < 0.3
        wave = draw.randint(1, 4)
        return worker_of(f"worker{index}", cuts, minibatch=size, in_flight=wave, recompute=recompute)

    workers = [worker(index) for index in range(draw.randint(1, 3))]
    return plan_of(*workers, served=draw.random() < 0.5, local_step=LocalStep.WAVE)


def layers(count: int = 4) -> list[nn.Module]:
    """A chain of small products in double precision."""
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(count)]


def samples(count: int, *, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Random inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    inputs, targets = (torch.randn(count, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))
    return inputs, targets


def alone(batches: Sequence[tuple[Tensor, Tensor]], optimizer: Callable) -> tuple[list[float], dict[str, Tensor]]:
    """Plain training in one process: the losses, and the weights by global name."""
    model = nn.Sequential(*layers())
    steps, losses = optimizer(model.parameters()), []
    for inputs, targets in batches:
        loss = MSE(model(inputs), targets)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, {f"layer{name}": value.detach() for name, value in model.named_parameters()}


def check_close(weights: dict[str, Tensor], expected: dict[str, Tensor], *, tolerance: float = 1e-9) -> None:
    """Compare weights by global name."""
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(weights[name], value, rtol=0, atol=tolerance), name
