"""A first bound on all plans of a variant: layers that can be divided freely over the devices.

Derivation: docs/solver.md, "The fluid bound". With the columns of
:mod:`stagecut.planner.solvers.exact.fluid_costs`, n_k devices of kind k and M micro-batches, the shares x[c,l] of the
layers that the choices c have satisfy

    cover   sum over c of x[c,l] >= 1 for every layer,
    sync    sum over c of kind k, l of d_c (M w + g)[c,l] x[c,l] <= n_k T,
    fill    m (sum over c of kind k, l of d_c w[c,l] x[c,l]) + n_k (sum of all trips x + g_0) <= n_k T,
    memory  sum over c of kind k, l of d_c h[c,l] x[c,l] <= n_k (memory of a device),

on average over the kinds at any prices (the fill rows: with an m that depends on their prices). Any prices that are
not negative give a bound, so those of a linear program may be off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, warmup_depth
from stagecut.planner.core.tolerances import ALMOST_ZERO, MEMORY_ROUNDING, PATH_SUM
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.exact.fluid_costs import FluidCosts, Sorts, fluid_costs, sorts_of
from stagecut.planner.solvers.interleaved.shapes import floor_s, shapes_of
from stagecut.planner.solvers.search.highs import LinearProgram, solve_linear


def fluid_bounds(costs: CostModel, variants: Sequence[Variant]) -> Floats:
    """Seconds that every plan of each variant takes at least, shape (variants,).

    Infinite where no plan fits in memory; zero, for nothing is known, with unequal micro-batches.
    """
    sorts, equal = sorts_of(costs.problem), set(costs.problem.variants)
    return np.array(
        [_bound_s(costs.of(variant.share), variant, sorts) if variant in equal else 0.0 for variant in variants]
    )


def _bound_s(costs: CostModel, variant: Variant, sorts: Sorts) -> float:
    if variant.schedule is Schedule.INTERLEAVED:
        return min((floor_s(costs, shape) for shape in shapes_of(costs, variant)), default=np.inf) * (1 - PATH_SUM)
    rows = fluid_rows(costs, variant, sorts)
    return np.inf if rows is None else max(rows.bound_s(prices) for prices in rows.prices())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of the rows of each family, one for every kind of devices, shape (K,) each."""

    sync: Floats
    fill: Floats
    memory: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidRows:
    """The rows of one variant."""

    costs: FluidCosts
    sorts: Sorts
    num_microbatches: int
    first_tail_s: float
    """g_0: least tail of the first stage."""
    most_lost: float
    """How many times the slowest stage a fill row may lack, at most."""
    lost_is_idle: bool
    """Whether later stages are idle for as long as it lacks."""

    def bound_s(self, prices: Prices) -> float:
        """What the prices prove."""
        num, columns = self.costs.kind_devices, self.costs
        held = float(prices.memory @ np.where(prices.memory > 0, num * columns.kind_bytes, 0.0))
        devices = float(num @ (prices.sync + prices.fill))
        total_s = float(self.sorts.count @ self.worths_s(prices)) + float(num @ prices.fill) * self.first_tail_s
        if devices <= 0:
            return np.inf if total_s > held * (1 + MEMORY_ROUNDING) else 0.0
        return max(0.0, (total_s - held * (1 + MEMORY_ROUNDING)) / devices * (1 - PATH_SUM))

    def worths_s(self, prices: Prices) -> Floats:
        """The least that a layer of each sort costs at these prices, shape (U,)."""
        worths_s: Floats = self.charges_s(prices).min(axis=0)
        return worths_s

    def charges_s(self, prices: Prices) -> Floats:
        """What a layer costs at these prices on each choice, shape (C, U)."""
        columns, num = self.costs, self.num_microbatches
        sync, fill, memory = (own[columns.kind][:, None] for own in (prices.sync, prices.fill, prices.memory))
        each_s = sync * (num * columns.work_s + columns.tail_s) + fill * self.in_row(prices.fill) * columns.work_s
        trips_s = float(columns.kind_devices @ prices.fill) * columns.trip_s
        return columns.num_devices[:, None] * (each_s + memory * columns.held_bytes) + trips_s + columns.fits

    def in_row(self, fill: Floats) -> float:
        """m: how many times the mean stage a fill row has beside the round trip, at such prices."""
        most = float(self.num_microbatches - 1)
        least = fill[np.unique(self.costs.kind)].min() / max(float(self.costs.kind_devices @ fill), ALMOST_ZERO)
        if not self.lost_is_idle:
            return most - self.most_lost
        return most if most * least >= 1 else (most - self.most_lost) / (1 - self.most_lost * least)

    def prices(self) -> Iterator[Prices]:
        """Prices worth a try: those of equal speed, and the best for the m of these."""
        columns, none = self.costs, np.zeros_like(self.costs.kind_devices)
        if not np.isfinite(columns.fits.min(axis=0)).all():
            yield Prices(sync=none, fill=none, memory=none)
            return
        device_s = np.full((len(none), len(self.sorts.count)), np.inf)
        np.minimum.at(device_s, columns.kind, columns.num_devices[:, None] * columns.work_s)
        speed = _inverse(device_s @ self.sorts.count)
        yield Prices(sync=speed, fill=none, memory=none)
        yield Prices(sync=none, fill=speed, memory=none)
        scale_s = self.bound_s(Prices(sync=speed, fill=none, memory=none)) or 1.0
        program = self._program(self.in_row(speed), scale_s)
        answer = solve_linear(program, time_limit_s=np.inf, stop=lambda: False)
        size, num = len(none), columns.kind_devices
        if answer.row_duals.shape == program.row_lower.shape:
            sync, fill, memory = np.abs(answer.row_duals[: 3 * size]).reshape(3, size)
            yield Prices(
                sync=sync / num,
                fill=fill / num,
                memory=memory * scale_s / num * _inverse(columns.kind_bytes),
            )

    def _program(self, in_row: float, scale_s: float) -> LinearProgram:
        """Variables T, sum of trips, and x[c,u] where the layer fits; times in units of `scale_s`."""
        columns, size = self.costs, len(self.costs.kind_devices)
        choice, sort = np.nonzero(np.isfinite(columns.fits))
        kind = columns.kind[choice]
        part = columns.num_devices[choice] / columns.kind_devices[kind]
        work_s = columns.work_s[choice, sort]
        sync_s = part * (self.num_microbatches * work_s + columns.tail_s[choice, sort])
        held = part * columns.held_bytes[choice, sort] * _inverse(columns.kind_bytes)[kind]
        number, variable, trips = len(choice), 2 + np.arange(len(choice)), 3 * size + len(self.sorts.count)
        kinds = np.arange(size)
        entries = [
            (kind, variable, sync_s / scale_s),
            (size + kind, variable, in_row * part * work_s / scale_s),
            (2 * size + kind, variable, held),
            (3 * size + sort, variable, np.ones(number)),
            (np.full(number, trips), variable, columns.trip_s[choice, sort] / scale_s),
            (kinds, np.zeros(size, dtype=int), -np.ones(size)),
            (size + kinds, np.zeros(size, dtype=int), -np.ones(size)),
            (size + kinds, np.ones(size, dtype=int), np.ones(size)),
            (np.array([trips]), np.array([1]), -np.ones(1)),
        ]
        entry_row, entry_column, entry_value = (np.concatenate(part) for part in zip(*entries, strict=True))
        below = np.concatenate((np.zeros(size), np.full(size, -self.first_tail_s / scale_s), np.ones(size)))
        return LinearProgram(
            cost=np.concatenate((np.ones(1), np.zeros(number + 1))),
            lower=np.zeros(number + 2),
            upper=np.full(number + 2, np.inf),
            row_lower=np.concatenate((np.full(3 * size, -np.inf), self.sorts.count, [-np.inf])),
            row_upper=np.concatenate((below, np.full(len(self.sorts.count), np.inf), [0.0])),
            entry_row=entry_row,
            entry_column=entry_column,
            entry_value=entry_value,
        )


def fluid_rows(costs: CostModel, variant: Variant, sorts: Sorts) -> FluidRows | None:
    """The rows of one variant, whose share the costs are of; None if the job allows no device group."""
    columns = fluid_costs(costs, variant, sorts)
    if columns is None:
        return None
    deepest = warmup_depth(variant.schedule, costs.max_stages, variant.num_microbatches)
    flush = variant.schedule is Schedule.GPIPE
    return FluidRows(
        costs=columns,
        sorts=sorts,
        num_microbatches=variant.num_microbatches,
        first_tail_s=float(columns.tail_s[:, sorts.of_layers[0]].min()),
        most_lost=0.0 if flush else (deepest - 1) * columns.forward_share,
        lost_is_idle=variant.schedule is not Schedule.EAGER_ONE_F_ONE_B,
    )


def _inverse(values: Floats) -> Floats:
    """1 / x, and 0 for 0 and infinity."""
    usable = (values > 0) & np.isfinite(values)
    return np.where(usable, 1 / np.where(usable, values, 1.0), 0.0)
