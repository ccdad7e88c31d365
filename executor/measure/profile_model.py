"""Measures the layers of a model on the devices of this machine, with all devices busy as in training."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from stagecut.executor.machine.devices import AUTOCAST, device_title, device_type_name, use_device
from stagecut.executor.measure.chain_source import ChainSource
from stagecut.executor.measure.inspection import ChainFacts, inspect_chain
from stagecut.executor.measure.kernels import update_bandwidth_bytes_per_s, update_timings
from stagecut.executor.measure.progress import Progress
from stagecut.executor.measure.samples import draw_samples
from stagecut.executor.measure.stage_times import StageTimes, TimingOptions, arriving
from stagecut.executor.measure.timings import KINDS, Floats, Pass, Summary, TimedPass, Timing, any_clean, summarize
from stagecut.executor.measure.workers import Worker, run_workers
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision

MOST_INSPECTED = 4
"""Samples used to count bytes, which are proportional to their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChoices:
    """What to measure, and how."""

    source: ChainSource
    sample_shape: tuple[int, ...] | None = None
    """Shape of one sample, for layers that cannot make samples themselves."""
    micro_batches: tuple[int, ...]
    """Sizes in samples, increasing."""
    layers: tuple[int, int] | None = None
    """First layer to time, and one past the last; None: all."""
    precision: Precision = Precision.FP32
    device: str = "cpu"
    """`cpu` or `cuda`."""
    device_type: str | None = None
    """Device type to record; None: the device's own name."""
    processes: int = 1
    threads: int = 1
    """Threads per process."""
    in_flight: int = 3
    repetitions: int = 10
    warmup: int = 3
    time_limit_s: float = math.inf
    """Afterwards, remaining sizes are skipped, and a size ends once it has one timing of each kind."""
    tell: bool = False
    """Whether to report progress on stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTimes:
    """Seconds at one micro-batch size, over all processes."""

    samples: int
    summaries: dict[TimedPass, Summary]

    def layer_s(self, *, is_forward: bool) -> tuple[float, ...]:
        """Seconds per layer, scaled so that they add up to the time of the whole stage.

        Cutting the graph between layers costs time that is not spent in training.
        """
        return self._scaled(self.summaries[TimedPass(Pass.LAYERS, is_forward)].median_s, is_forward=is_forward)

    def layer_spread_s(self, *, is_forward: bool) -> tuple[float, ...]:
        """Median absolute deviation of :meth:`layer_s`."""
        return self._scaled(self.summaries[TimedPass(Pass.LAYERS, is_forward)].spread_s, is_forward=is_forward)

    def _scaled(self, layers_s: Floats, *, is_forward: bool) -> tuple[float, ...]:
        scale = 1 / self.cuts_factor(is_forward=is_forward)
        return tuple(float(seconds) * scale for seconds in layers_s)

    def cuts_factor(self, *, is_forward: bool) -> float:
        """How many times longer the stage takes with the graph cut between layers."""
        return self.summaries[TimedPass(Pass.LAYERS, is_forward)].total_s / self.whole_s(is_forward=is_forward)

    def whole_s(self, *, is_forward: bool) -> float:
        """Seconds of the whole stage."""
        return self.summaries[TimedPass(Pass.WHOLE, is_forward)].total_s

    def whole_spread_s(self, *, is_forward: bool) -> float:
        """Median absolute deviation of :meth:`whole_s`."""
        return float(self.summaries[TimedPass(Pass.WHOLE, is_forward)].spread_s.sum())

    @property
    def num_kept(self) -> int:
        """Forwards and backwards that were kept."""
        return sum(summary.num_kept for summary in self.summaries.values())

    @property
    def num_rejected(self) -> int:
        """Forwards and backwards rejected because other programs held the processors."""
        return sum(summary.num_rejected for summary in self.summaries.values())

    @property
    def recomputed_backward_s(self) -> tuple[float, ...]:
        """Seconds of each layer's backward, including recomputation of its forward."""
        return tuple(float(seconds) for seconds in self.summaries[TimedPass(Pass.RECOMPUTED, False)].median_s)

    @property
    def contaminated(self) -> bool:
        """Whether some figure has no clean timing."""
        return any(summary.contaminated for summary in self.summaries.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurement:
    """A model measured on one type of device."""

    name: str
    device_type: str
    device_title: str
    facts: ChainFacts
    first_layer: int
    times: tuple[SizeTimes, ...]
    """By micro-batch size."""
    update: Summary | None
    """One step of AdamW on the weights of the timed layers; None if they have none."""
    num_updated_params: int
    left_out: tuple[int, ...] = ()
    """Micro-batch sizes skipped for lack of time."""

    @property
    def contaminated(self) -> bool:
        """Whether some figure has no clean timing."""
        return any(each.contaminated for each in (*self.times, self.update) if each is not None)

    @property
    def update_bandwidth_bytes_per_s(self) -> float | None:
        """The memory bandwidth at which the cost model predicts the measured update time."""
        if self.update is None:
            return None
        return update_bandwidth_bytes_per_s(self.num_updated_params, self.update.total_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    """What one process measured."""

    name: str
    device_type: str
    device_title: str
    facts: ChainFacts | None
    """Only from the first process."""
    timings: tuple[dict[TimedPass, list[Timing]], ...]
    """By micro-batch size, without those skipped."""
    update: list[Timing]
    num_params: int


def profile_model(choices: ProfileChoices) -> ModelMeasurement:
    """Measure a model in new processes; raises what :func:`check_choices` raises."""
    check_choices(choices)
    return merge(choices, run_workers(measure, choices.processes, choices))


def check_choices(choices: ProfileChoices) -> ModuleChain:
    """Check the choices, and return the layers.

    Raises
    ------
    BadInputError
        If there are no such layers, they differ from the catalogue's profile, or the range exceeds them.
    """
    chain = choices.source.chain()
    analytic = choices.source.analytic_profile(Precision.FP32)
    names = [layer.name for layer in chain.layers]
    if analytic is not None and names != (known := [layer.name for layer in analytic.layers]):
        differing = sorted(set(names) ^ set(known)) or "their order"
        raise BadInputError(f"model {chain.name!r}: its modules are not the layers of the catalogue: {differing}")
    _, stop = _span(choices, chain)
    if stop > len(chain.layers):
        last = len(chain.layers) - 1
        raise BadInputError(f"--layer-range: model {chain.name!r} has layers 0 to {last}, got {stop - 1}")
    return chain


def measure(worker: Worker, choices: ProfileChoices) -> _Findings:
    """One process's part; all processes do the same at the same time."""
    deadline_s = time.monotonic() + choices.time_limit_s
    device = use_device(choices.device, index=worker.rank, threads=choices.threads)
    torch.manual_seed(worker.rank)
    chain, autocast = choices.source.chain(), AUTOCAST.get(choices.precision)
    largest = max(2, *choices.micro_batches)
    samples = draw_samples(chain, largest, shape=choices.sample_shape, device=device)
    few = samples.first(2 * (min(largest, MOST_INSPECTED) // 2))
    facts = inspect_chain(chain, few, autocast=autocast) if worker.rank == 0 else None
    options = TimingOptions(
        in_flight=choices.in_flight,
        repetitions=choices.repetitions,
        warmup=choices.warmup,
        layers=_span(choices, chain),
        autocast=autocast,
    )
    here = arriving(chain, samples, layer=options.layers[0], autocast=autocast)
    stage = StageTimes(chain, options, device=device)
    timings = []
    for piece, size in enumerate(choices.micro_batches, start=1):
        if worker.agree_to_stop(piece > 1 and time.monotonic() >= deadline_s):
            break
        what = f"micro-batches of {size}"
        tell = Progress(what).update if choices.tell and worker.rank == 0 else lambda _share: None
        timings.append(stage.timings(here.first(size), worker, piece=piece, deadline_s=deadline_s, tell=tell))
    repetitions = choices.repetitions if time.monotonic() < deadline_s else 1
    parameters = [parameter for module in stage.modules for parameter in module.parameters()]
    worker.meet()
    return _Findings(
        name=chain.name,
        device_type=choices.device_type or device_type_name(device, choices.threads),
        device_title=device_title(device, choices.threads),
        facts=facts,
        timings=tuple(timings),
        update=update_timings(parameters, device, repetitions=repetitions) if parameters else [],
        num_params=sum(parameter.numel() for parameter in parameters),
    )


def merge(choices: ProfileChoices, findings: Sequence[_Findings]) -> ModelMeasurement:
    """Merge what all processes measured."""
    first = findings[0]
    assert first.facts is not None
    num_timed = len(first.timings)
    sizes = choices.micro_batches
    return ModelMeasurement(
        name=first.name,
        device_type=first.device_type,
        device_title=first.device_title,
        facts=first.facts,
        first_layer=choices.layers[0] if choices.layers else 0,
        times=tuple(
            size_times(size, [each.timings[index] for each in findings]) for index, size in enumerate(sizes[:num_timed])
        ),
        update=summarize([timing for each in findings for timing in each.update]) if first.num_params else None,
        num_updated_params=first.num_params,
        left_out=sizes[num_timed:],
    )


def size_times(samples: int, found: Sequence[Mapping[TimedPass, Sequence[Timing]]]) -> SizeTimes:
    """Merge what all processes measured at one size.

    Layer times are scaled by the whole stage, so either both use clean timings only, or both use all.
    """
    pooled = {kind: [timing for each in found for timing in each[kind]] for kind in KINDS}
    gated = {
        is_forward: all(any_clean(pooled[TimedPass(passed, is_forward)]) for passed in Pass)
        for is_forward in (True, False)
    }
    return SizeTimes(
        samples=samples,
        summaries={kind: summarize(pooled[kind], gated=gated[kind.is_forward]) for kind in KINDS},
    )


def _span(choices: ProfileChoices, chain: ModuleChain) -> tuple[int, int]:
    return choices.layers or (0, len(chain.layers))
