"""A first bound on all plans of a variant: layers that can be divided freely over the devices.

Derivation: docs/bounds.md, "The fluid bound". With the columns of
:mod:`stagecut.planner.solvers.exact.fluid_costs`, n_k devices of kind k and M micro-batches, the shares x[c,l] of the
layers that the choices c have satisfy

    cover   sum over c of x[c,l] >= 1 for every layer,
    sync    sum over c of kind k, l of d_c (M w + g)[c,l] x[c,l] <= n_k T,
    fill    m (sum over c of kind k, l of d_c w[c,l] x[c,l]) + n_k (sum of all trips x + g_0) <= n_k T,
    memory  sum over c of kind k, l of d_c h[c,l] x[c,l] <= n_k (memory of a device),

on average over the kinds at any prices (the fill rows: with an m that depends on their prices). Any prices that are
not negative give a bound, so those of a linear program may be off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO, MEMORY_ROUNDING, PATH_SUM
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, warmup_depth
from stagecut.planner.core.share import Share
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.solvers.exact.fluid_costs import (
    FluidColumns,
    FluidCosts,
    Sorts,
    fluid_columns,
    fluid_costs,
    sorts_of,
)
from stagecut.planner.solvers.interleaved.shapes import floor_s, shapes_of
from stagecut.planner.solvers.search.highs import LinearProgram, solve_linear

MOST_SORTS = 100
"""Sorts of layers in a program. For 1,000 unlike layers on 128 devices, bounds of every fourth variant take 1.0 s in
place of 9.5, and the least is 0.2 % lower. Models of the catalogue but synthetic ones have at most 23 sorts."""
KEPT = (1.0, 0.75, 0.5, 0.25)
"""Shares of the round trip to try."""


def fluid_bounds(
    costs: CostModel, variants: Sequence[Variant], *, enough_s: float = np.inf, at_once: bool = False
) -> Floats:
    """Seconds that every plan of each variant takes at least, shape (variants,).

    Infinite where no plan fits in memory; zero, for nothing is known, with unequal micro-batches. Bounds beyond
    `enough_s` are not improved; `at_once`, none are.
    """
    enough_s = -np.inf if at_once else enough_s
    sorts, equal = sorts_of(costs.problem), set(costs.problem.variants)
    columns: dict[tuple[Share, int], FluidColumns | None] = {}  # schedules share them

    def bound_s(variant: Variant) -> float:
        if variant not in equal:
            return 0.0
        own, key = costs.of(variant.share), (variant.share, variant.micro_batch)
        if variant.schedule is Schedule.INTERLEAVED:
            return min((floor_s(own, shape) for shape in shapes_of(own, variant)), default=np.inf) * (1 - PATH_SUM)
        if key not in columns:
            columns[key] = fluid_columns(own, variant.micro_batch, sorts)
        rows = _fluid_rows(own, variant, sorts, columns[key])
        return np.inf if rows is None else rows.solution(enough_s=enough_s).seconds

    return np.array([bound_s(variant) for variant in variants])


def fluid_bound(costs: CostModel, variant: Variant, limit_s: float) -> "FluidBound | None":
    """The bound on the plans of one variant that take less than a limit; None if the job allows no device group."""
    own, sorts = costs.of(variant.share), sorts_of(costs.problem)
    rows = _fluid_rows(own, variant, sorts, fluid_columns(own, variant.micro_batch, sorts))
    return None if rows is None else rows.solution(limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of the rows of each family, one for every kind of devices, shape (K,) each."""

    sync: Floats
    fill: Floats
    memory: Floats
    kept: float = 1.0
    """How much of the round trip the fill rows count."""


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
        return float(self.spread_s(prices, self.sorts.count @ self.worths_s(prices)))

    def spread_s(self, prices: Prices, charged_s: Floats) -> Floats:
        """What plans take at least whose stages cost that much at these prices, elementwise."""
        num, columns = self.costs.kind_devices, self.costs
        held = float(prices.memory @ np.where(prices.memory > 0, num * columns.kind_bytes, 0.0)) * (1 + MEMORY_ROUNDING)
        devices = float(num @ (prices.sync + prices.fill))
        total_s = charged_s + float(num @ prices.fill) * self.first_tail_s
        if devices <= 0:
            return np.where(total_s > held, np.inf, 0.0)
        return np.maximum(0.0, (total_s - held) / devices * (1 - PATH_SUM))

    def worths_s(self, prices: Prices) -> Floats:
        """The least that a layer of each sort costs at these prices, shape (U,)."""
        worths_s: Floats = self.charges_s(prices).min(axis=0)
        return worths_s

    def charges_s(self, prices: Prices) -> Floats:
        """What a layer costs at these prices on each choice, shape (C, U)."""
        columns, num = self.costs, self.num_microbatches
        sync, fill, memory = (own[columns.kind][:, None] for own in (prices.sync, prices.fill, prices.memory))
        each_s = (
            sync * (num * columns.work_s + columns.tail_s)
            + fill * self.in_row(prices.fill, prices.kept) * columns.work_s
        )
        trips_s = prices.kept * float(columns.kind_devices @ prices.fill) * columns.trip_s
        return columns.num_devices[:, None] * (each_s + memory * columns.held_bytes) + trips_s + columns.fits

    def in_row(self, fill: Floats, kept: float) -> float:
        """m: how many times the mean stage a fill row has beside the round trip, at such prices."""
        most = self.num_microbatches - kept
        if not self.lost_is_idle:
            return most - kept * self.most_lost
        lost = np.append(np.arange(np.ceil(self.most_lost)), self.most_lost)
        idle = np.interp(lost, np.arange(1 + len(self.sorts.of_layers)), self._idle(fill))
        busy = 1 - idle / max(float(self.costs.kind_devices @ fill), ALMOST_ZERO)
        return float(np.min((most - kept * lost)[busy > 0] / busy[busy > 0]))

    def _idle(self, fill: Floats) -> Floats:
        """Least price of 0 .. L device groups that each hold a layer, shape (L + 1,)."""
        columns, num_layers = self.costs, len(self.sorts.of_layers)
        of_devices = np.repeat(fill, np.minimum(columns.kind_devices, num_layers).astype(int))
        groups = (fill[columns.kind] * columns.num_devices)[:, None] + columns.fits
        of_layers = groups.min(axis=0)[self.sorts.of_layers]
        of_devices = np.append(np.sort(of_devices), np.full(num_layers, np.inf))[:num_layers]
        return np.append(0.0, np.cumsum(np.maximum(of_devices, np.sort(of_layers))))

    def below(self, limit_s: float) -> "FluidRows":
        """The rows of the plans that take less: no stage holds a layer that takes longer on its own."""
        alone_s = self.num_microbatches * self.costs.work_s + self.costs.tail_s
        fits = np.where(alone_s > limit_s * (1 + PATH_SUM), np.inf, self.costs.fits)
        return replace(self, costs=replace(self.costs, fits=fits))

    def solution(self, limit_s: float = np.inf, *, enough_s: float = np.inf) -> "FluidBound":
        """The best bound of a few prices: those of equal speed, then those of two programs, until one is enough.

        Plans that take `limit_s` or longer are of no interest; without a limit, those slower than a guess.
        """
        none = np.zeros_like(self.costs.kind_devices)
        full = Prices(sync=none, fill=none, memory=np.ones_like(none))
        if self.bound_s(full) == np.inf:
            return FluidBound(seconds=np.inf, rows=self, prices=full)
        device_s = np.full((len(none), len(self.sorts.count)), np.inf)
        np.minimum.at(device_s, self.costs.kind, self.costs.num_devices[:, None] * self.costs.work_s)
        speed = _inverse(device_s @ self.sorts.count)
        even = Prices(sync=speed, fill=none, memory=none)
        if (first := self.best_of([even])).seconds >= enough_s:
            return first
        lossless = replace(self, most_lost=0.0)
        ideal = lossless.solved(1.0, lossless.in_row(speed, 1.0), first.seconds or 1.0) or even
        tried = [replace(own, kept=kept) for kept in KEPT for own in (ideal, replace(even, sync=none, fill=speed))]
        first = self.best_of([even, ideal])
        if first.seconds >= enough_s:
            return first
        if limit_s == np.inf:
            limit_s = max(first.seconds, lossless.bound_s(ideal))
        if not 0 < limit_s < np.inf:
            return first
        rows = self.below(limit_s)
        best = rows.best_of(tried).prices
        better = rows.solved(best.kept, rows.in_row(best.fill, best.kept), limit_s) or best
        second = rows.best_of([*tried, better])
        return replace(second, seconds=max(first.seconds, min(limit_s, second.seconds)))

    def best_of(self, tried: Sequence[Prices]) -> "FluidBound":
        """The best bound of these prices."""
        seconds, prices = max(((self.bound_s(prices), prices) for prices in tried), key=lambda pair: pair[0])
        return FluidBound(seconds=seconds, rows=self, prices=prices)

    def solved(self, kept: float, in_row: float, scale_s: float) -> Prices | None:
        """The best prices for the plans whose fill rows have that m, if a program gives any."""
        program = self._with_few_sorts()._program(in_row, kept, scale_s)
        answer = solve_linear(program)
        if answer.row_duals.shape != program.row_lower.shape:
            return None
        num = self.costs.kind_devices
        sync, fill, memory = np.abs(answer.row_duals[: 3 * len(num)]).reshape(3, -1) / num
        memory = memory * scale_s * _inverse(self.costs.kind_bytes)
        return Prices(sync=sync, fill=fill, memory=memory, kept=kept)

    def _with_few_sorts(self) -> "FluidRows":
        """Rows in which runs of sorts count as one layer if there are many: their prices are nearly as good."""
        count, columns = self.sorts.count, self.costs
        if len(count) <= MOST_SORTS:
            return self
        begins = np.linspace(0, len(count), MOST_SORTS, endpoint=False).astype(int)

        def summed(values: Floats) -> Floats:
            return np.add.reduceat(values * count, begins, axis=1)

        few = replace(
            columns,
            fits=summed(columns.fits),
            work_s=summed(columns.work_s),
            trip_s=summed(columns.trip_s),
            tail_s=summed(columns.tail_s),
            held_bytes=summed(columns.held_bytes),
        )
        return replace(self, costs=few, sorts=replace(self.sorts, count=np.ones(MOST_SORTS)))

    def _program(self, in_row: float, kept: float, scale_s: float) -> LinearProgram:
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
            (size + kinds, np.ones(size, dtype=int), np.full(size, kept)),
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


def _fluid_rows(costs: CostModel, variant: Variant, sorts: Sorts, columns: FluidColumns | None) -> FluidRows | None:
    """The rows of one variant, whose share the costs are of; None if the job allows no device group."""
    if columns is None:
        return None
    own = fluid_costs(costs, variant, columns)
    deepest = warmup_depth(variant.schedule, costs.max_stages, variant.num_microbatches)
    flush = variant.schedule is Schedule.GPIPE
    return FluidRows(
        costs=own,
        sorts=sorts,
        num_microbatches=variant.num_microbatches,
        first_tail_s=float(own.tail_s[:, sorts.of_layers[0]].min()),
        most_lost=0.0 if flush else (deepest - 1) * own.forward_share,
        lost_is_idle=variant.schedule is not Schedule.EAGER_ONE_F_ONE_B,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidBound:
    """What good prices prove of a variant."""

    seconds: float
    """No plan is faster."""
    rows: FluidRows
    """Those of the plans below some limit no less than that."""
    prices: Prices

    def through_s(self, kind: int, num_devices: int, start: Ints, stop: Ints, stages: StageCosts) -> Floats:
        """The same for the plans with a stage [start, stop) on a device group, `stages` its costs, shape (n,).

        The kind of its devices counts the islands of all server classes in order. Valid below the limit of the rows.
        """
        rows, prices, own = self.rows, self.prices, self.rows.costs
        worths_s = np.append(0.0, np.cumsum(rows.worths_s(prices)[rows.sorts.of_layers]))
        work_s = stages.forward_s + stages.backward_s
        trip_s = stages.forward_s * own.first_share + stages.backward_s
        row_s = prices.sync[kind] * (rows.num_microbatches * work_s + stages.sync_s + stages.update_s)
        row_s = row_s + prices.fill[kind] * rows.in_row(prices.fill, prices.kept) * work_s
        held = prices.memory[kind] * (stages.static_bytes + own.in_flight * stages.saved_bytes)
        return rows.spread_s(
            prices,
            worths_s[-1]
            - (worths_s[stop] - worths_s[start])
            + num_devices * (row_s + held)
            + prices.kept * float(own.kind_devices @ prices.fill) * trip_s,
        )


def _inverse(values: Floats) -> Floats:
    """1 / x, and 0 for 0 and infinity."""
    usable = (values > 0) & np.isfinite(values)
    return np.where(usable, 1 / np.where(usable, values, 1.0), 0.0)
