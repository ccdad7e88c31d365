"""The MIP of :mod:`planner.network.program`, put together for HiGHS, whole or relaxed."""

import itertools
from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.network import program
from stagecut.planner.network.rows import Rows
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.solvers.search.highs import LinearProgram


def stage_program(
    rows: Rows, *, integer: bool, missing_penalty: float | None, excluded: Sequence[Ints] = (), longest: float = np.inf
) -> tuple[LinearProgram, list[slice]]:
    """The program over the arcs of the rows' network.

    Parameters
    ----------
    rows
        Scaled so that the iteration time is about 1, where the solver's absolute tolerances fit.
    missing_penalty
        Price of a host that the cluster lacks; None: none may be missing.
    excluded
        Stage arcs of the paths to leave out.
    longest
        Upper limit of the iteration time.

    Returns
    -------
    program
        Columns as in :class:`planner.network.program.Columns`.
    family_slices
        For each family, its constraints; the last slice holds those of the server classes.
    """
    columns = program.columns_of(rows)
    families = [program.family_rows(rows, columns, family) for family in rows.families]
    hosts = program.hosts(rows, columns)
    blocks = [
        *families,
        hosts,
        program.flow(rows),
        program.prefix(rows, columns, columns.round_trip, rows.round_trip),
        program.prefix(rows, columns, columns.forward, rows.forward),
        program.flush(columns),
        program.exclusion(excluded),
    ]
    begins = np.cumsum([0, *(block.num_rows for block in blocks)])
    cost = np.zeros(columns.total)
    cost[columns.target] = 1.0
    cost[columns.missing :] = missing_penalty or 0.0
    upper = np.full(columns.total, np.inf)
    upper[: columns.num_arcs] = 1.0
    upper[columns.target] = longest
    if missing_penalty is None:
        upper[columns.missing :] = 0.0
    linear = LinearProgram(
        cost=cost,
        lower=np.zeros(columns.total),
        upper=upper,
        row_lower=np.concatenate([block.lower for block in blocks]),
        row_upper=np.concatenate([block.upper for block in blocks]),
        entry_row=np.concatenate([block.rows + begin for block, begin in zip(blocks, begins, strict=False)]),
        entry_column=np.concatenate([block.columns for block in blocks]),
        entry_value=np.concatenate([block.values for block in blocks]),
        num_integer=columns.num_arcs if integer else 0,
    )
    slices = [slice(int(first), int(last)) for first, last in itertools.pairwise(begins)]
    return linear, slices[: len(families) + 1]


def path_of(network: StageNetwork, columns: Floats) -> Ints:
    """Arcs of the path in an integer solution, in order."""
    used = np.flatnonzero(columns[: len(network.arcs)] > 0.5)
    return used[np.argsort(network.arcs.tail[used])]
