"""Simulated annealing with the simulator as its objective: what a metaheuristic reaches without any theory.

Kirkpatrick, Gelatt and Vecchi, Science 220, 1983. From a plan x a random neighbour y is tried; with
t(x) the simulated iteration time, y replaces x with probability

    1 if t(y) <= t(x), else exp(-(t(y) - t(x)) / (theta t(x)))

where the temperature theta, relative to the time, falls by the same factor at every step. Neighbours:

- layers: boundaries moved by one layer, or one boundary by up to eight (:mod:`planner.solvers.heuristic.moves`);
- device groups: one host's groups changed, dropped, added, turned around, or moved to another place in
  the pipeline (the same module); the layers are then balanced anew;
- variant: another schedule or micro-batch size on the same device groups, or another number of
  pipelines with device groups drawn at random.

Several chains one after the other, each from the best of a few plans drawn at random for a variant, the
fastest variants first: every host that is used gets equal groups of a random size, hosts in random
order. The generator's seed is that of the options, and a search that ends by its number of steps is the
same every time. Our own choice throughout: it stands for no paper's planner. Interleaved variants are
not searched.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Ints
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.arrangement import arrangement_of
from stagecut.planner.network.device_groups import PlacedGroup, name_devices, placements_in_host
from stagecut.planner.solvers.heuristic.balance import balanced
from stagecut.planner.solvers.heuristic.local_search import seated_layout, simulated
from stagecut.planner.solvers.heuristic.moves import Run, neighbouring_cuts, neighbouring_runs, runs_of, seats_of
from stagecut.planner.solvers.heuristic.seated import SeatedStages
from stagecut.planner.solvers.heuristic.stage_tables import StageTables
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

NAME = "annealing"
SCHEDULES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
NUM_CHAINS, NUM_STEPS = 4, 600
"""Chains, and steps of each."""
HOT, COLD = 0.05, 0.0005
"""Temperatures of the first and the last step, relative to the iteration time."""
NUM_STARTS, NUM_DRAWS = 2, 12
"""Random plans of each variant to begin from, and draws to find one that fits."""
LAYERS_SHARE, GROUPS_SHARE = 0.65, 0.25
"""Of all moves; the rest change the variant."""


def solve(problem: Problem, search: Search) -> Result:
    """The fastest plan met; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows interleaved plans only.
    """
    require_schedules(problem, NAME, SCHEDULES)
    variants = [variant for variant in problem.variants if variant.schedule in SCHEDULES]
    annealer = Annealer(search, variants)
    for start in annealer.starts()[:NUM_CHAINS]:
        annealer.anneal(start)
    return search.result(NAME, proves=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A plan on its way."""

    seated: SeatedStages
    stops: Ints
    """Shape (S,)."""
    seconds: float
    """Simulated iteration time."""


class Annealer:
    """Chains over the variants of one problem, with one generator for all."""

    def __init__(self, search: Search, variants: list[Variant]) -> None:
        self._search, self._variants = search, variants
        self._tables = StageTables(search.costs)
        self._random = np.random.default_rng(search.options.seed)
        self._changes: tuple[SeatedStages | None, list[tuple[Run, ...]]] = (None, [])
        self._times: dict[tuple[Variant, tuple[PlacedGroup, ...], tuple[int, ...]], float] = {}

    def starts(self) -> list[State]:
        """The plan known at the start, if any, and the best random plan of every variant, the fastest first."""
        found = [self._known()]
        for variant in self._variants:
            drawn = [self._drawn(variant) for _ in range(NUM_STARTS)]
            found.append(min((state for state in drawn if state), key=lambda state: state.seconds, default=None))
        return sorted((state for state in found if state is not None), key=lambda state: state.seconds)

    def anneal(self, state: State) -> State:
        """The last state of a chain."""
        for step in range(NUM_STEPS):
            if self._search.out_of_budget:
                break
            neighbour = self._neighbour(state)
            temperature = HOT * (COLD / HOT) ** (step / NUM_STEPS)
            if neighbour is not None and self._accepts(state.seconds, neighbour.seconds, temperature):
                state = neighbour
        return state

    def _accepts(self, seconds: float, new_s: float, temperature: float) -> bool:
        """Metropolis: always a step down, a step up the less often the higher."""
        threshold = -math.log(1.0 - self._random.random())
        return new_s - seconds <= threshold * temperature * seconds

    def _neighbour(self, state: State) -> State | None:
        """A random one; None where the move leads out of the search space."""
        kind = self._random.random()
        move: Callable[[State], State | None] = self._other_variant
        if kind < LAYERS_SHARE:
            move = self._moved_layers
        elif kind < LAYERS_SHARE + GROUPS_SHARE:
            move = self._changed_groups
        return move(state)

    def _moved_layers(self, state: State) -> State | None:
        cuts = neighbouring_cuts(state.stops)
        return self._simulated(state.seated, cuts[self._random.integers(len(cuts))]) if len(cuts) else None

    def _changed_groups(self, state: State) -> State | None:
        changes = self._changes_of(state.seated)
        if not changes:
            return None
        return self._on_seats(state.seated.variant, seats_of(changes[self._random.integers(len(changes))]))

    def _changes_of(self, seated: SeatedStages) -> list[tuple[Run, ...]]:
        """All neighbouring sequences of device groups; those of the last state are kept."""
        if self._changes[0] is not seated:
            variant = seated.variant
            cluster = self._cluster(variant)
            found = neighbouring_runs(self._search.problem, cluster, variant.micro_batch, runs_of(seated.seats))
            self._changes = (seated, [runs for runs in found if runs])
        return self._changes[1]

    def _other_variant(self, state: State) -> State | None:
        variant = self._variants[self._random.integers(len(self._variants))]
        if variant == state.seated.variant:
            return None
        if variant.share != state.seated.variant.share:
            return self._drawn(variant)
        job, seats = self._search.problem.job, state.seated.seats
        if not all(job.allows_replicas(seat.placement.replicas, variant.micro_batch) for seat in seats):
            return None
        return self._simulated(SeatedStages(self._tables, variant, seats), state.stops)

    def _known(self) -> State | None:
        plan = self._search.best_plan
        if plan is None or plan.variant not in self._variants:
            return None
        layout = arrangement_of(self._search.costs.of(plan.share), plan)
        seated, stops = seated_layout(self._tables, plan.variant, layout)
        return State(seated=seated, stops=stops, seconds=self._search.best_s)

    def _drawn(self, variant: Variant) -> State | None:
        """A random plan; None if there is no luck."""
        for _ in range(NUM_DRAWS):
            if self._search.out_of_budget:
                break
            state = self._on_seats(variant, seats_of(self._random_runs(variant)))
            if state is not None:
                return state
        return None

    def _random_runs(self, variant: Variant) -> tuple[Run, ...]:
        """Some hosts in random order, each filled with equal groups of a random size."""
        servers = self._cluster(variant).servers
        hosts = [index for index, server in enumerate(servers) for _ in range(server.count)]
        order = self._random.permutation(hosts)[: self._random.integers(1, len(hosts) + 1)]
        runs = (self._random_run(variant, int(index)) for index in order)
        return tuple(run for run in runs if run)

    def _random_run(self, variant: Variant, server_class: int) -> Run:
        run: Run = ()
        for island, group in enumerate(self._cluster(variant).servers[server_class].islands):
            where = {"server_class": server_class, "island": island, "free": group.count}
            groups = list(placements_in_host(self._search.problem, **where, micro_batch=variant.micro_batch))
            if groups:
                placement = groups[self._random.integers(len(groups))]
                run += (placement,) * (group.count // placement.devices_per_host)
        return run

    def _on_seats(self, variant: Variant, seats: tuple[PlacedGroup, ...]) -> State | None:
        """Layers balanced over device groups; None if hosts, devices, layers or memory do not suffice."""
        if not 0 < len(seats) <= self._tables.num_layers or name_devices(self._cluster(variant), seats) is None:
            return None
        seated = SeatedStages(self._tables, variant, seats)
        stops = balanced(seated)
        return None if stops is None else self._simulated(seated, stops)

    def _simulated(self, seated: SeatedStages, stops: Ints) -> State | None:
        key = (seated.variant, seated.seats, tuple(stops.tolist()))
        if key not in self._times:
            self._times[key] = float(simulated(self._search, seated, stops[None])[0])
        seconds = self._times[key]
        return State(seated=seated, stops=stops, seconds=seconds) if math.isfinite(seconds) else None

    def _cluster(self, variant: Variant) -> Cluster:
        return self._search.costs.of(variant.share).cluster
