"""Data parallelism on unlike devices: each that can hold the model is a worker of one stage."""

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.workers.building import plan_of, seats_of, worker_of
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.kinds import Kinds
from stagecut.planner.workers.rows.row_tables import RowTables, Setting


def data_parallel_plan(problem: Problem) -> WavePlan | None:
    """The plan of all devices that hold the whole model, with one minibatch in flight each; None if none does."""
    tables = RowTables(problem, Kinds(problem))
    kinds = range(tables.kinds.num_kinds)
    fits = [bool(tables.options(kind, 1, 0, tables.num_layers)) for kind in kinds]
    own = [kind for kind in kinds if fits[kind] for _ in range(int(tables.kinds.counts[kind]))]
    if not own:
        return None
    seats = seats_of(problem.cluster, [tuple(int(kind == each) for each in kinds) for kind in own])
    setting = Setting.of(1, num_workers=len(own))
    chains = [Chain(kinds=(kind,), stops=(tables.num_layers,)) for kind in own]
    pairs = zip(chains, seats, strict=True)
    return plan_of(tables, tuple(worker_of(tables, setting, chain, (1,), seat) for chain, seat in pairs))
