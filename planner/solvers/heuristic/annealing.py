"""Simulated annealing with the simulator as its objective: what a metaheuristic achieves without any theory.

Kirkpatrick, Gelatt and Vecchi, Science 220, 1983. From a plan x a random neighbour y is tried; with t(x) the simulated
iteration time, y replaces x with probability

    1 if t(y) <= t(x), else exp(-(t(y) - t(x)) / (theta t(x)))

where the temperature theta, relative to the time, falls by the same factor at every step. Neighbours:

- layers: boundaries moved (:mod:`stagecut.planner.solvers.heuristic.moves`);
- device groups: one host's groups changed, dropped, added, reversed, or moved to another position in the pipeline
  (the same module), followed by a min-max cut of the layers;
- variant: another schedule or micro-batch size on the same device groups, or another number of pipelines with random
  device groups.

Several chains run one after another, each from the best of a few random plans of a variant, the fastest variants first;
a random plan takes hosts in random order and fills each with equal groups of a random size. Searches that end by their
number of steps are reproducible. All choices are ours and stand for no paper's planner. Interleaved variants are not
searched.
"""

import math

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.device_groups import PlacedGroup, placements_in_host
from stagecut.planner.solvers.heuristic.candidates import Candidate, best_known
from stagecut.planner.solvers.heuristic.local_search import simulated_times
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.moves import (
    Run,
    groups_of,
    neighbouring_cuts,
    neighbouring_runs,
    runs_of,
    suffice,
)
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

NAME = "annealing"
SCHEDULES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
# Half or twice each of these, on 3 problems, one run each: the times vary with the random numbers as much as by design.
NUM_CHAINS, NUM_STEPS = 4, 600
"""Number of chains, and of steps in each; fewer: plans up to 9 % slower, more: up to 11 % faster, in twice the time."""
HOT, COLD = 0.05, 0.0005
"""Temperatures of the first and the last step, relative to the iteration time; -3 to +1 %."""
NUM_STARTS, NUM_DRAWS = 2, 12
"""Random plans drawn for each variant, -11 to 0 %, and attempts to draw one that fits, which change no plan."""
LAYERS_SHARE, GROUPS_SHARE = 0.65, 0.25
"""Shares of all moves, -11 to +10 %; the rest change the variant."""


def solve(problem: Problem, search: Search) -> Result:
    """The fastest plan found; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows only interleaved plans.
    """
    require_schedules(problem, NAME, SCHEDULES)
    variants = [variant for variant in problem.variants if variant.schedule in SCHEDULES]
    annealer = Annealer(search, variants)
    for start in annealer.starts()[:NUM_CHAINS]:
        annealer.anneal(start)
    return search.result(NAME, proves=False)


class Annealer:
    """Chains over the variants of one problem, which share one random generator; a state is a simulated candidate."""

    def __init__(self, search: Search, variants: list[Variant]) -> None:
        self._search, self._variants = search, variants
        self._tables = StageTables(search.costs)
        self._random = np.random.default_rng(search.options.seed)
        # Neighbours of the last state's device groups.
        self._changes: tuple[SequenceCosts | None, list[tuple[Run, ...]]] = (None, [])
        self._times: dict[tuple[Variant, tuple[PlacedGroup, ...], tuple[int, ...]], float] = {}

    def starts(self) -> list[Candidate]:
        """The plan the search started from, if any, and the best random plan of every variant, the fastest first."""
        found = [self._known()]
        for variant in self._variants:
            drawn = [self._drawn(variant) for _ in range(NUM_STARTS)]
            found.append(min((state for state in drawn if state), key=lambda state: state.seconds, default=None))
        return sorted((state for state in found if state is not None), key=lambda state: state.seconds)

    def anneal(self, state: Candidate) -> Candidate:
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
        """The Metropolis rule: never reject a faster plan, reject a slower one more often the slower it is."""
        threshold = -math.log(1.0 - self._random.random())
        return new_s - seconds <= threshold * temperature * seconds

    def _neighbour(self, state: Candidate) -> Candidate | None:
        """A random neighbour; None if the move leads out of the search space."""
        kind = self._random.random()
        if kind < LAYERS_SHARE:
            return self._moved_layers(state)
        return self._changed_groups(state) if kind < LAYERS_SHARE + GROUPS_SHARE else self._other_variant(state)

    def _moved_layers(self, state: Candidate) -> Candidate | None:
        cuts = neighbouring_cuts(state.stops)
        return self._simulated(state.sequence, cuts[self._random.integers(len(cuts))]) if len(cuts) else None

    def _changed_groups(self, state: Candidate) -> Candidate | None:
        sequence, variant = state.sequence, state.sequence.variant
        if self._changes[0] is not sequence:
            cluster, runs = self._cluster(variant), runs_of(sequence.groups)
            found = neighbouring_runs(self._search.problem, cluster, variant.micro_batch, runs)
            self._changes = (sequence, [runs for runs in found if runs])
        _, changes = self._changes
        if not changes:
            return None
        return self._on_groups(variant, groups_of(changes[self._random.integers(len(changes))]))

    def _other_variant(self, state: Candidate) -> Candidate | None:
        variant = self._variants[self._random.integers(len(self._variants))]
        if variant == state.sequence.variant:
            return None
        if variant.share != state.sequence.variant.share:
            return self._drawn(variant)
        job, groups = self._search.problem.job, state.sequence.groups
        if not all(job.allows_replicas(group.placement.replicas, variant.micro_batch) for group in groups):
            return None
        return self._simulated(SequenceCosts(self._tables, variant, groups), state.stops)

    def _known(self) -> Candidate | None:
        known = best_known(self._search, self._tables)
        return known if known is not None and known.sequence.variant in self._variants else None

    def _drawn(self, variant: Variant) -> Candidate | None:
        """A random plan; None if no attempt gives one that fits."""
        for _ in range(NUM_DRAWS):
            if self._search.out_of_budget:
                break
            state = self._on_groups(variant, groups_of(self._random_runs(variant)))
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
        for island, devices in enumerate(self._cluster(variant).servers[server_class].islands):
            where = {"server_class": server_class, "island": island, "free": devices.count}
            groups = list(placements_in_host(self._search.problem, **where, micro_batch=variant.micro_batch))
            if groups:
                placement = groups[self._random.integers(len(groups))]
                run += (placement,) * (devices.count // placement.devices_per_host)
        return run

    def _on_groups(self, variant: Variant, groups: tuple[PlacedGroup, ...]) -> Candidate | None:
        """The min-max cut over device groups; None if hosts, devices, layers or memory do not suffice."""
        if not suffice(self._cluster(variant), self._tables.num_layers, groups):
            return None
        sequence = SequenceCosts(self._tables, variant, groups)
        stops = min_max_stops(sequence)
        return None if stops is None else self._simulated(sequence, stops)

    def _simulated(self, sequence: SequenceCosts, stops: Ints) -> Candidate | None:
        key = (sequence.variant, sequence.groups, tuple(stops.tolist()))
        if key not in self._times:
            self._times[key] = float(simulated_times(self._search, sequence, stops[None])[0])
        seconds = self._times[key]
        return Candidate(sequence=sequence, stops=stops, seconds=seconds) if math.isfinite(seconds) else None

    def _cluster(self, variant: Variant) -> Cluster:
        return self._search.costs.of(variant.share).cluster
