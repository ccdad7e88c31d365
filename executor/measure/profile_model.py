"""Measures the layers of a model on the devices of this machine, with every device at work as in a training."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from stagecut.executor.measure.chain_source import ChainSource
from stagecut.executor.measure.devices import AUTOCAST, device_title, device_type_name, use_device
from stagecut.executor.measure.inspection import ChainFacts, inspect_chain
from stagecut.executor.measure.kernels import update_bandwidth_bytes_per_s, update_readings
from stagecut.executor.measure.processes import Company, run_processes
from stagecut.executor.measure.progress import Progress
from stagecut.executor.measure.readings import KINDS, Kind, Pass, Reading, Summary, any_clean, summarize
from stagecut.executor.measure.samples import draw_samples
from stagecut.executor.measure.stage_times import StageTimes, Timing, arriving
from stagecut.models.module_chain import ModuleChain
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.precision import Precision

MOST_INSPECTED = 4
"""Samples with which bytes are counted: they grow in proportion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChoices:
    """What to measure, and how."""

    source: ChainSource
    sample_shape: tuple[int, ...] | None = None
    """Of one sample, for layers that cannot make any themselves."""
    micro_batches: tuple[int, ...]
    """Sizes in samples, increasing."""
    layers: tuple[int, int] | None = None
    """First layer to time, and one past the last; None: all of them."""
    precision: Precision = Precision.FP32
    device: str = "cpu"
    """`cpu` or `cuda`."""
    device_type: str | None = None
    """Name for the times; None: the device's own."""
    processes: int = 1
    threads: int = 1
    """Of each process."""
    in_flight: int = 3
    repetitions: int = 10
    warmup: int = 3
    time_limit_s: float = math.inf
    """After it sizes are left out, all but the first, and no more rounds begun than each kind needs one of."""
    tell: bool = False
    """Whether to say on stderr how far it has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTimes:
    """Seconds at one micro-batch size, over all processes."""

    samples: int
    summaries: dict[Kind, Summary]

    def layer_s(self, *, is_forward: bool) -> tuple[float, ...]:
        """Of every layer, scaled such that their sum is the time of the whole stage.

        A cut between layers costs time that a training does not spend.
        """
        scale = 1 / self.cuts_factor(is_forward=is_forward)
        return tuple(float(seconds) * scale for seconds in self.summaries[Kind(Pass.LAYERS, is_forward)].median_s)

    def layer_spread_s(self, *, is_forward: bool) -> tuple[float, ...]:
        """Median absolute deviation of :meth:`layer_s`."""
        scale = 1 / self.cuts_factor(is_forward=is_forward)
        return tuple(float(seconds) * scale for seconds in self.summaries[Kind(Pass.LAYERS, is_forward)].spread_s)

    def cuts_factor(self, *, is_forward: bool) -> float:
        """How many times longer the stage takes with a cut between any two layers."""
        return self.summaries[Kind(Pass.LAYERS, is_forward)].total_s / self.whole_s(is_forward=is_forward)

    def whole_s(self, *, is_forward: bool) -> float:
        """Of the whole stage."""
        return self.summaries[Kind(Pass.WHOLE, is_forward)].total_s

    def whole_spread_s(self, *, is_forward: bool) -> float:
        """Median absolute deviation of :meth:`whole_s`."""
        return float(self.summaries[Kind(Pass.WHOLE, is_forward)].spread_s.sum())

    @property
    def num_kept(self) -> int:
        """Forwards and backwards that count."""
        return sum(summary.num_kept for summary in self.summaries.values())

    @property
    def num_rejected(self) -> int:
        """Forwards and backwards that do not, for others held the processors."""
        return sum(summary.num_rejected for summary in self.summaries.values())

    @property
    def recomputed_backward_s(self) -> tuple[float, ...]:
        """Of the backward of every layer that computes its forward again first."""
        return tuple(float(seconds) for seconds in self.summaries[Kind(Pass.RECOMPUTED, False)].median_s)

    @property
    def contaminated(self) -> bool:
        """Whether some figure has no clean reading."""
        return any(summary.contaminated for summary in self.summaries.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurement:
    """A model as measured on one kind of device."""

    name: str
    device_type: str
    device_title: str
    facts: ChainFacts
    first_layer: int
    times: tuple[SizeTimes, ...]
    """By micro-batch size."""
    update: Summary | None
    """One step of AdamW on the weights of the layers that were timed; None where they have none."""
    num_updated_params: int
    left_out: tuple[int, ...] = ()
    """Micro-batch sizes for which there was no time."""

    @property
    def contaminated(self) -> bool:
        """Whether some figure has no clean reading."""
        return any(each.contaminated for each in (*self.times, self.update) if each is not None)

    @property
    def update_bandwidth_bytes_per_s(self) -> float | None:
        """Memory bandwidth with which the cost model comes to the time of the update."""
        if self.update is None:
            return None
        return update_bandwidth_bytes_per_s(self.num_updated_params, self.update.total_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    """Of one process."""

    name: str
    device_type: str
    device_title: str
    facts: ChainFacts | None
    """From the first process only."""
    readings: tuple[dict[Kind, list[Reading]], ...]
    """By micro-batch size, of those that were begun."""
    update: list[Reading]
    num_params: int


def profile_model(choices: ProfileChoices) -> ModelMeasurement:
    """Measure a model, in processes of its own; see :func:`check_choices` for what it may complain of."""
    check_choices(choices)
    return merge(choices, run_processes(measure, choices.processes, choices))


def check_choices(choices: ProfileChoices) -> ModuleChain:
    """The layers, after a look at what is to be done with them.

    Raises
    ------
    BadInputError
        If there are no such layers, they are not those of the catalogue's profile, or the range ends beyond them.
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


def measure(company: Company, choices: ProfileChoices) -> _Findings:
    """One process's part: all processes do the same at the same time."""
    deadline_s = time.monotonic() + choices.time_limit_s
    device = use_device(choices.device, index=company.rank, threads=choices.threads)
    torch.manual_seed(company.rank)
    chain, autocast = choices.source.chain(), AUTOCAST.get(choices.precision)
    largest = max(2, *choices.micro_batches)
    samples = draw_samples(chain, largest, shape=choices.sample_shape, device=device)
    few = samples.first(2 * (min(largest, MOST_INSPECTED) // 2))
    facts = inspect_chain(chain, few, autocast=autocast) if company.rank == 0 else None
    timing = Timing(
        in_flight=choices.in_flight,
        repetitions=choices.repetitions,
        warmup=choices.warmup,
        layers=_span(choices, chain),
        autocast=autocast,
    )
    here = arriving(chain, samples, layer=timing.layers[0], autocast=autocast)
    stage = StageTimes(chain, timing, device=device)
    readings = []
    for piece, size in enumerate(choices.micro_batches, start=1):
        if company.agree_to_stop(piece > 1 and time.monotonic() >= deadline_s):
            break
        what = f"micro-batches of {size}"
        tell = Progress(what).told if choices.tell and company.rank == 0 else lambda _share: None
        readings.append(stage.readings(here.first(size), company, piece=piece, deadline_s=deadline_s, tell=tell))
    repetitions = choices.repetitions if time.monotonic() < deadline_s else 1
    parameters = [parameter for module in stage.modules for parameter in module.parameters()]
    company.meet()
    return _Findings(
        name=chain.name,
        device_type=choices.device_type or device_type_name(device, choices.threads),
        device_title=device_title(device, choices.threads),
        facts=facts,
        readings=tuple(readings),
        update=update_readings(parameters, device, repetitions=repetitions) if parameters else [],
        num_params=sum(parameter.numel() for parameter in parameters),
    )


def merge(choices: ProfileChoices, findings: Sequence[_Findings]) -> ModelMeasurement:
    """What all processes found together, but for the sizes that there was no time for."""
    first = findings[0]
    assert first.facts is not None
    num_timed = len(first.readings)
    sizes = choices.micro_batches
    return ModelMeasurement(
        name=first.name,
        device_type=first.device_type,
        device_title=first.device_title,
        facts=first.facts,
        first_layer=choices.layers[0] if choices.layers else 0,
        times=tuple(
            size_times(size, [each.readings[index] for each in findings])
            for index, size in enumerate(sizes[:num_timed])
        ),
        update=summarize([reading for each in findings for reading in each.update]) if first.num_params else None,
        num_updated_params=first.num_params,
        left_out=sizes[num_timed:],
    )


def size_times(samples: int, found: Sequence[Mapping[Kind, Sequence[Reading]]]) -> SizeTimes:
    """What all processes found at one size.

    Layers are scaled by the whole stage, so both are to be read from clean repetitions, or both from all.
    """
    pooled = {kind: [reading for each in found for reading in each[kind]] for kind in KINDS}
    gated = {
        is_forward: all(any_clean(pooled[Kind(passed, is_forward)]) for passed in Pass) for is_forward in (True, False)
    }
    return SizeTimes(
        samples=samples,
        summaries={kind: summarize(pooled[kind], gated=gated[kind.is_forward]) for kind in KINDS},
    )


def _span(choices: ProfileChoices, chain: ModuleChain) -> tuple[int, int]:
    return choices.layers or (0, len(chain.layers))
