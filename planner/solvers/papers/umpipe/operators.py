"""Selection, crossover, mutation and elitism: what the genetic searches have in common.

A chromosome has one gene for each process: the index of its size among those to choose from, ascending. Everything
random comes from one generator in a fixed order, so searches that differ only in how they compute fitness breed the
same populations.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.messages.checks import require, require_count
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.solvers.papers.umpipe.equal_sizes import equal_genes
from stagecut.planner.solvers.papers.umpipe.found import Found, Lines, sizes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Breeding:
    """Parameters of the genetic searches: ours, since those of the paper are not known to us."""

    population: int = 512
    generations: int = 60
    elite: int = 4
    """The fittest chromosomes live on unchanged."""
    tournament: int = 4
    """Chromosomes drawn for each parent, of which the fittest is taken."""
    crossover: float = 0.9
    """Probability with which a child takes a run of genes from a second parent."""
    steps: float = 0.5
    """Probability with which a run of a child's genes steps to the next size."""
    mutations: float = 0.5
    """Genes of a child that are drawn anew, in the mean."""

    def __post_init__(self) -> None:
        for field in ("population", "generations", "tournament", "elite"):
            require_count("breeding", field, getattr(self, field))
        rule = f"at least the elite of {self.elite}"
        require(self.population >= self.elite, "breeding", "population", rule, self.population)


Evaluate = Callable[[Ints], Floats]
"""Makespans, shape (P,), of P chromosomes, shape (P, processes): the shorter, the fitter."""


def bred(lines: Lines, evaluate: Evaluate, random: np.random.Generator, breeding: Breeding) -> Found:
    """The fittest chromosome, of the processes of all lines, after all generations.

    The first population holds the best common sizes, up to half of it; the others are drawn at random.
    """
    num_options = np.array([len(process.sizes) for line in lines for process in line.processes])
    equal = by_fitness(equal_genes(lines), evaluate)[: breeding.population // 2]
    drawn = random.integers(num_options, size=(breeding.population - len(equal), len(num_options)))
    population = np.concatenate((equal, drawn))
    for _ in range(breeding.generations):
        ranked = by_fitness(population, evaluate)
        children = mutated(crossed(ranked, random, breeding), num_options, random, breeding)
        population = np.concatenate((ranked[: breeding.elite], children))
    fittest = by_fitness(population, evaluate)[0]
    return Found(sizes=sizes_of(lines, fittest.tolist()), num_evaluations=(breeding.generations + 1) * population.size)


def by_fitness(population: Ints, evaluate: Evaluate) -> Ints:
    """The fittest first; equally fit ones as they were."""
    ranked: Ints = population[np.argsort(evaluate(population), kind="stable")]
    return ranked


def crossed(ranked: Ints, random: np.random.Generator, breeding: Breeding) -> Ints:
    """Children of two parents each: those of the first, but for a run of genes between two places of the second."""
    count, num_genes = len(ranked) - breeding.elite, ranked.shape[1]
    first, second = (selected(ranked, count, random, breeding) for _ in range(2))
    taken = in_run(count, num_genes, random) & (random.random((count, 1)) < breeding.crossover)
    return np.where(taken, second, first)


def selected(ranked: Ints, count: int, random: np.random.Generator, breeding: Breeding) -> Ints:
    """Winners of tournaments: each the fittest of a few chromosomes drawn from all, the fittest of which come first."""
    winners: Ints = ranked[random.integers(len(ranked), size=(breeding.tournament, count)).min(axis=0)]
    return winners


def mutated(children: Ints, num_options: Ints, random: np.random.Generator, breeding: Breeding) -> Ints:
    """In some children a run of genes steps to the next larger or smaller sizes; then some genes become any size."""
    count, num_genes = children.shape
    step = random.integers(2, size=(count, 1)) * 2 - 1
    steps = in_run(count, num_genes, random) & (random.random((count, 1)) < breeding.steps)
    stepped = np.clip(children + step * steps, 0, num_options - 1)
    drawn = (random.random(children.shape) * num_options).astype(np.int64)
    return np.where(random.random(children.shape) * num_genes < breeding.mutations, drawn, stepped)


def in_run(count: int, num_genes: int, random: np.random.Generator) -> Bools:
    """Which genes are between two places drawn at random, for each of so many chromosomes."""
    one, other = random.integers(num_genes + 1, size=(2, count, 1))
    place = np.arange(num_genes)
    inside: Bools = (one <= place) ^ (other <= place)
    return inside
