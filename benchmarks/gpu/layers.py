"""Layers of a model on one device: a measured profile, for micro-batches as large as memory allows."""

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from stagecut.executor.machine.devices import AUTOCAST, device_memory_bytes, device_title
from stagecut.executor.measure.inspection import ChainFacts, LayerFacts, inspect_chain
from stagecut.executor.measure.kernels import update_timings
from stagecut.executor.measure.measured_profile import measured_profile, with_times
from stagecut.executor.measure.profile_model import MOST_INSPECTED, ModelMeasurement, SizeTimes, size_times
from stagecut.executor.measure.samples import Samples, draw_samples
from stagecut.executor.measure.stage_times import StageTimes, TimingOptions
from stagecut.executor.measure.timings import summarize
from stagecut.executor.measure.workers import single_worker
from stagecut.executor.play.stage import as_state, precision
from stagecut.models import build_model, build_modules
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision

STATIC_BYTES = 16
"""Bytes per parameter: weight, gradient and AdamW's state in fp32."""
MEMORY_SHARE = 0.6
"""Share of the device's memory for weights and micro-batches as counted: allocators need some room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How carefully to measure."""

    in_flight: int = 2
    repetitions: int = 8
    warmup: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A catalogue model on this machine's device."""

    chain: ModuleChain
    analytic: ModelProfile
    facts: ChainFacts
    precision: Precision
    device: torch.device
    device_type: str

    @classmethod
    def of(
        cls, name: str, *, precision: Precision, device: torch.device, device_type: str, sequence_length: int | None
    ) -> "Subject":
        """Run every layer once to find out what it keeps in memory."""
        chain, autocast = build_modules(name, sequence_length=sequence_length), AUTOCAST.get(precision)
        few = draw_samples(chain, MOST_INSPECTED, shape=None, device=device)
        return cls(
            chain=chain,
            analytic=build_model(name, precision=precision, sequence_length=sequence_length),
            facts=inspect_chain(chain, few, autocast=autocast),
            precision=precision,
            device=device,
            device_type=device_type,
        )

    @property
    def autocast(self) -> torch.dtype | None:
        """The type in which torch computes; None: that of the weights."""
        return AUTOCAST.get(self.precision)

    @property
    def budget_bytes(self) -> float:
        """Memory that may be used."""
        return MEMORY_SHARE * device_memory_bytes(self.device, sharing=1)

    def timing(self, layers: tuple[int, int], effort: Effort) -> TimingOptions:
        """How to time these layers."""
        return TimingOptions(
            in_flight=effort.in_flight,
            repetitions=effort.repetitions,
            warmup=effort.warmup,
            layers=layers,
            autocast=self.autocast,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """Layers measured on the whole device."""

    profile: ModelProfile
    update_s: float
    """Seconds per parameter of an optimizer step."""
    contaminated: bool


def profile_layers(subject: Subject, sizes: Sequence[int], effort: Effort) -> Profiled:
    """Times at these micro-batch sizes, measured in groups of consecutive layers that leave room for the largest."""
    samples = draw_samples(subject.chain, max(sizes), shape=None, device=subject.device)
    measurements = []
    for span in spans(subject.facts.layers, budget_bytes=subject.budget_bytes, in_flight=effort.in_flight, sizes=sizes):
        measurement, samples = _measure(subject, span, samples, sizes=sizes, effort=effort)
        measurements.append(measurement)
    first, *others = measurements
    profile = measured_profile(first, precision=subject.precision, analytic=subject.analytic)
    for measurement in others:
        profile = with_times(profile, measurement)
    return Profiled(
        profile=profile,
        update_s=sum(each.update.total_s for each in measurements if each.update)
        / sum(each.num_updated_params for each in measurements),
        contaminated=any(measurement.contaminated for measurement in measurements),
    )


def spans(
    layers: Sequence[LayerFacts], *, budget_bytes: float, in_flight: int, sizes: Iterable[int]
) -> tuple[tuple[int, int], ...]:
    """Groups of consecutive layers, each as long as memory allows, but of at least one layer."""
    largest, starts, held, working = max(sizes), [0], 0.0, 0.0
    for index, layer in enumerate(layers):
        held += held_bytes(layer, samples=in_flight * largest)
        working = max(working, largest * layer.working_bytes)
        if index > starts[-1] and held + working > budget_bytes:
            starts.append(index)
            held, working = held_bytes(layer, samples=in_flight * largest), largest * layer.working_bytes
    return tuple(zip(starts, [*starts[1:], len(layers)], strict=True))


def held_bytes(layer: LayerFacts, *, samples: int) -> float:
    """Bytes of the weights, and of what this many samples keep between forward and backward."""
    kept_bytes = max(layer.saved_bytes, layer.allocated_bytes)
    return STATIC_BYTES * (layer.num_params + layer.num_shared_params) + samples * kept_bytes


def _measure(
    subject: Subject, span: tuple[int, int], samples: Samples, *, sizes: Sequence[int], effort: Effort
) -> tuple[ModelMeasurement, Samples]:
    """Times of one group of layers, and the samples as they leave it."""
    stage = StageTimes(subject.chain, subject.timing(span, effort), device=subject.device)
    times: list[SizeTimes] = []
    for size in sizes:
        try:
            times.append(size_times(size, [stage.timings(samples.first(size), single_worker(), piece=1)]))
        except torch.OutOfMemoryError:
            print(f"{subject.chain.name}: not enough memory for layers {span[0]} to {span[1] - 1} at {size} samples")
            break
        free_memory()
    parameters = [parameter for module in stage.modules for parameter in module.parameters()]
    measurement = ModelMeasurement(
        name=subject.chain.name,
        device_type=subject.device_type,
        device_title=device_title(subject.device, torch.get_num_threads()),
        facts=subject.facts,
        first_layer=span[0],
        times=tuple(times),
        update=summarize(update_timings(parameters, subject.device, repetitions=effort.repetitions))
        if parameters
        else None,
        num_updated_params=sum(parameter.numel() for parameter in parameters),
    )
    leaving = _leaving(stage.modules, samples, subject)
    free_memory()
    return measurement, leaving


@torch.no_grad()
def _leaving(modules: Iterable[torch.nn.Module], samples: Samples, subject: Subject) -> Samples:
    state = samples.state
    with precision(subject.device, subject.autocast):
        for module in modules:
            state = as_state(module(*state))
    return Samples(state=state, targets=samples.targets)


def free_memory() -> None:
    """Return unused memory to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
