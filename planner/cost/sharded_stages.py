"""Stages whose devices divide each operator in its own way: the cheapest sharding of every interval of layers."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.cluster import Cluster, DeviceType
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.strategy import MEMORY_PRICES, StageSharding
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import Share
from stagecut.planner.cost.interval_tables import IntervalTable, cheapest_strategies, interval_table
from stagecut.planner.cost.meshes import meshes_of
from stagecut.planner.cost.operator_times import layer_works
from stagecut.planner.cost.weight_updates import WeightUpdates
from stagecut.planner.sharding.layer_costs import LayerWork, Prices
from stagecut.planner.sharding.layer_tables import LayerTable, layer_table
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.options import options_of
from stagecut.planner.sharding.placements import Placements

MAX_AXES = 2
"""Of the meshes that are tried."""
KEPT_BYTES = 1 << 27
"""Memory for the tables of one share of the cluster: about 150 with 66 layers each, 26 with 162."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Works:
    """The layers of the model on one device type and number of samples, equal ones once."""

    distinct: tuple[LayerWork, ...]
    numbers: tuple[int, ...]
    """For each layer the index of the one equal to it."""
    total_s: float
    """F + B of all of them, undivided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """All that the cheapest shardings depend on."""

    device: DeviceType
    samples: int
    meshes: tuple[Mesh, ...]
    prices: tuple[Prices, ...]


class ShardedStages:
    """The cheapest shardings of one problem, for one pipeline on its share of the cluster.

    Cheapest means F + B + (sync + update) / M + price x bytes held, with the saved bytes of one micro-batch, over all
    meshes of at most two axes and all strategies of all operators, for each of a few prices (`MEMORY_PRICES`), or over
    those that keep to the roles that the problem settles. Under recomputation the strategies are the same. Layers are
    those of the chain where the model is of runs of them.
    """

    def __init__(self, problem: Problem, share: Share, cluster: Cluster) -> None:
        self._problem, self._share, self._cluster = problem, share, cluster
        self._model = problem.model.unmerged[0]
        self._works: dict[tuple[str, int], _Works] = {}
        self._tables: dict[_Key, tuple[IntervalTable, Ints]] = {}
        self._layers: dict[tuple[_Key, Mesh], tuple[list[LayerTable], list[LayerTable]]] = {}

    def sums(self, placement: Placement, *, micro_batch: int, start: Ints, stop: Ints) -> Floats:
        """Costs of the stages [start, stop), shape (costs, n)."""
        table, _ = self._table(self._key(placement, micro_batch))
        return table.costs[placement.sharding, start, stop].T

    def sharding(self, placement: Placement, *, micro_batch: int, start: int, stop: int) -> StageSharding:
        """How the devices divide the layers of one stage."""
        key, price = self._key(placement, micro_batch), placement.sharding
        assert price is not None
        mesh = key.meshes[int(self._table(key)[1][price, start, stop])]
        layers, firsts = self._layer_tables(key, mesh)
        strategies = cheapest_strategies(firsts[start], layers[start + 1 : stop], price=price)
        return StageSharding(mesh=mesh.sizes, layers=strategies)

    def _key(self, placement: Placement, micro_batch: int) -> _Key:
        island = self._cluster.servers[placement.server_class].islands[placement.island]
        device, samples = self._cluster.device_type(island.device_type), micro_batch // placement.replicas
        return _Key(
            device=device,
            samples=samples,
            meshes=self._meshes(placement),
            prices=self._prices(placement, micro_batch, device, self._works_on(device, samples)),
        )

    def _meshes(self, placement: Placement) -> tuple[Mesh, ...]:
        """Those that are tried, or the one whose axes have the roles that are settled."""
        meshes, roles = meshes_of(self._cluster, placement, self._share, max_axes=MAX_AXES), self._problem.roles
        return meshes if roles is None else tuple(mesh for mesh in meshes if mesh.sizes == roles.sizes)

    def _prices(self, placement: Placement, micro_batch: int, device: DeviceType, works: _Works) -> tuple[Prices, ...]:
        degree, updates = placement.tensor_parallel, WeightUpdates(self._problem, self._share, self._cluster, placement)
        params = sum(layer.params_bytes for layer in self._model.layers)
        num_summed = np.array([max(1.0, params / self._model.precision.num_bytes / degree)])
        return tuple(
            Prices(
                num_microbatches=self._problem.job.global_batch // self._share.num_pipelines // micro_batch,
                sync_s_per_param=float((updates.sync_s(num_summed) / num_summed)[0]),
                update_s_per_param=float(updates.update_s(np.ones(1))[0]),
                num_holders=updates.num_holders,
                held_s_per_byte=price * works.total_s / degree / device.memory_bytes,
            )
            for price in MEMORY_PRICES
        )

    def _works_on(self, device: DeviceType, samples: int) -> _Works:
        key = (device.name, samples)
        if key not in self._works:
            works, numbers = layer_works(self._model, device, samples), dict[LayerWork, int]()
            self._works[key] = _Works(
                numbers=tuple(numbers.setdefault(work, len(numbers)) for work in works),
                distinct=tuple(numbers),
                total_s=sum(sum(work.forward_s) + sum(work.backward_s) for work in works),
            )
        return self._works[key]

    def _table(self, key: _Key) -> tuple[IntervalTable, Ints]:
        """The least over the meshes, and which mesh has it; the tables last used are kept, the last one at the end."""
        found = self._tables.pop(key, None) or self._least(key)
        self._tables[key] = found
        if len(self._tables) * found[0].costs.nbytes > KEPT_BYTES:
            oldest, *_ = self._tables  # all in one go: other threads take and keep tables meanwhile
            self._tables.pop(oldest, None)
        return found

    def _least(self, key: _Key) -> tuple[IntervalTable, Ints]:
        """The least over the meshes, the first of several equal ones."""
        tables = [interval_table(*self._build(key, mesh)) for mesh in key.meshes]
        best: Ints = np.argmin([table.value_s for table in tables], axis=0)
        value_s, costs = tables[0].value_s, tables[0].costs
        for number, table in enumerate(tables[1:], start=1):
            value_s = np.where(best == number, table.value_s, value_s)
            costs[best == number] = table.costs[best == number]
        return IntervalTable(value_s=value_s, costs=costs), best

    def _layer_tables(self, key: _Key, mesh: Mesh) -> tuple[list[LayerTable], list[LayerTable]]:
        """Those of a mesh that a plan uses."""
        if (key, mesh) not in self._layers:
            self._layers[key, mesh] = self._build(key, mesh)
        return self._layers[key, mesh]

    def _build(self, key: _Key, mesh: Mesh) -> tuple[list[LayerTable], list[LayerTable]]:
        """Tables of all layers within a stage, and as the first of one."""
        works = self._works_on(key.device, key.samples)
        known: dict[tuple[int, tuple[Placements, ...] | None], LayerTable] = {}

        def table(number: int, before: tuple[Placements, ...] | None) -> LayerTable:
            if (number, before) not in known:
                known[number, before] = self._layer(works.distinct[number], mesh, before, key.prices)
            return known[number, before]

        firsts = [table(number, None) for number in works.numbers]
        layers = [firsts[0]]
        for number in works.numbers[1:]:
            layers.append(table(number, layers[-1].states))
        return layers, firsts

    def _layer(
        self, work: LayerWork, mesh: Mesh, before: tuple[Placements, ...] | None, prices: tuple[Prices, ...]
    ) -> LayerTable:
        job = self._problem.job
        options = [
            options_of(
                operator,
                mesh,
                work.samples,
                optimizer=job.optimizer,
                element_bytes=self._model.precision.num_bytes,
                kinds=job.sharding or (),
                roles=self._problem.roles,
            )
            for operator in work.operators
        ]
        return layer_table(mesh, work, options, before=before, prices=prices)
