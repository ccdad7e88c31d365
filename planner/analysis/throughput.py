"""How fast a plan trains, how well it uses its devices, and what that costs."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.problem import Problem

MODEL_FLOPS_PER_FORWARD = 3.0
"""Forward and backward of a sample in forwards, whatever is recomputed (PaLM, arXiv 2204.02311, appendix B)."""
HOUR_S = 3600.0
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What the devices of a plan do in a second, and what they cost."""

    samples_per_s: float
    tokens_per_s: float | None
    """None without a sequence length."""
    model_flops_per_s: float | None
    """Operations of forwards and backwards, without recomputed ones; None if the model does not state any."""
    peak_flops_per_s: float | None
    """Sum over the plan's devices in the job's precision; None if it is unknown for one of them."""
    num_devices: int
    """Devices of the plan."""
    price_per_hour: float | None
    """Of all devices of the plan, and of whole hosts where servers have a price; None if one of them has none."""
    without_price: tuple[str, ...]
    """Device types of the plan without a price, in a cluster that states others."""

    @property
    def model_flops_utilisation(self) -> float | None:
        """Share of the peak that the model itself needs (MFU)."""
        if self.model_flops_per_s is None or self.peak_flops_per_s is None:
            return None
        return self.model_flops_per_s / self.peak_flops_per_s

    @property
    def price_per_million_samples(self) -> float | None:
        """In the currency of `price_per_hour`."""
        return self._price_per_million(self.samples_per_s)

    @property
    def price_per_million_tokens(self) -> float | None:
        """None without a sequence length."""
        return self._price_per_million(self.tokens_per_s)

    def _price_per_million(self, per_s: float | None) -> float | None:
        return None if self.price_per_hour is None or per_s is None else self.price_per_hour / HOUR_S / per_s * MILLION


def throughput_of(problem: Problem, devices: Collection[str], samples_per_s: float) -> Throughput:
    """The throughput of a plan on these devices of the cluster at that rate, which is above 0."""
    model, cluster = problem.model, problem.cluster
    types = [device.device_type for device in cluster.devices() if device.name in devices]
    peaks = [cluster.device_type(name).flops_per_s(problem.job.precision) for name in types]
    known = [peak for peak in peaks if peak is not None]
    price_per_hour, without_price = _price(cluster, devices)
    return Throughput(
        samples_per_s=samples_per_s,
        tokens_per_s=None if model.sequence_length is None else model.sequence_length * samples_per_s,
        model_flops_per_s=_model_flops_per_s(model, samples_per_s),
        peak_flops_per_s=sum(known) if len(known) == len(peaks) else None,
        num_devices=len(types),
        price_per_hour=price_per_hour,
        without_price=without_price,
    )


def _model_flops_per_s(model: ModelProfile, samples_per_s: float) -> float | None:
    forward_flops = sum(layer.forward_flops for layer in model.layers)
    return MODEL_FLOPS_PER_FORWARD * forward_flops * samples_per_s if forward_flops else None


def _price(cluster: Cluster, devices: Collection[str]) -> tuple[float | None, tuple[str, ...]]:
    """Price of an hour of the devices, and the types that have none where the cluster states others.

    A host whose server states a price costs that as soon as one of its devices is used.
    """
    used = [device for device in cluster.devices() if device.name in devices]
    hosts = {(device.server_class, device.host) for device in used}
    whole = [cluster.servers[server].price_per_hour for server, _ in hosts]
    alone = Counter(each.device_type for each in used if cluster.servers[each.server_class].price_per_hour is None)
    prices = {name: price for name in alone if (price := cluster.device_type(name).price_per_hour) is not None}
    if missing := tuple(sorted(alone.keys() - prices)):
        stated = [each.price_per_hour for each in cluster.device_types]
        stated += [each.price_per_hour for each in cluster.servers]
        return None, missing if any(price is not None for price in stated) else ()
    return sum(prices[name] * number for name, number in alone.items()) + sum(price for price in whole if price), ()
