"""What the times of a problem's layers rest on: measurements, estimates, or both."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.problem import Problem


class Basis(StrEnum):
    """Where times come from."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    """By the roofline model, from the data sheet in the cluster file."""
    BOTH = "both"
    """Some layers are measured, the others estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBasis:
    """What the times of all layers rest on, by the device types that the cluster has, in its order."""

    by_device_type: tuple[tuple[str, Basis], ...]
    unused: tuple[tuple[str, int], ...]
    """Device types with measured times that no device of the cluster has, each with how many layers have such times."""

    @property
    def basis(self) -> Basis:
        """That of all device types together."""
        found = {basis for _, basis in self.by_device_type}
        return found.pop() if len(found) == 1 else Basis.BOTH

    def on(self, basis: Basis) -> tuple[str, ...]:
        """The device types whose times rest on that."""
        return tuple(name for name, own in self.by_device_type if own is basis)


def time_basis(problem: Problem) -> TimeBasis:
    """What the times of the problem rest on; every plan and bound may use any device of the cluster."""
    present = tuple(dict.fromkeys(device.device_type for device in problem.cluster.devices()))
    measured: dict[str, int] = {}
    for layer in problem.model.layers:
        for name in {table.device_type for table in layer.times}:
            measured[name] = measured.get(name, 0) + 1
    kinds = {0: Basis.ESTIMATED, problem.model.num_layers: Basis.MEASURED}
    return TimeBasis(
        by_device_type=tuple((name, kinds.get(measured.get(name, 0), Basis.BOTH)) for name in present),
        unused=tuple((name, count) for name, count in sorted(measured.items()) if name not in present),
    )
