"""The mixed-integer program (MIP) over a stage network: the whole of it, as arrays for HiGHS.

Sets
    a in A    arcs: a stage [i_a, j_a) on a placement, or a transfer at boundary i_a = j_a
    v         nodes, with one source and one sink
    l         layers 0 .. L - 1
    j         boundaries; the cut before layer j, with L behind the last layer
    h         server classes

Parameters (seconds, unless stated), of :mod:`stagecut.planner.network.rows`
    e_a         round trip of an arc: F + B + g_0 of a stage (g_0: g of the first stage, else 0), 2 c of a transfer
    d_a         forward part of an arc: F of a stage, c of a transfer
    w_a, u_a    what a family of rows adds for an arc: `cost_s`, and `ending_s` in a family of boundaries
    n_ah, N_h   hosts of class h that an arc opens, and that there are (counts)
    M, k        micro-batches and warm-up depth (counts)
    p           penalty for a missing host, in iteration times

Variables
    x_a in {0, 1}   whether the plan uses the arc; in [0, 1] in the relaxation
    E_j, D_j >= 0   round trips and forward parts of the arcs that end at or before boundary j = 1 .. L; E_0 = D_0 = 0
    T, T_1, T_2 >= 0    iteration time; under GPipe also its forward and backward half
    s_h >= 0        missing hosts; 0 without a penalty

Program
    min  T + p sum_h s_h   subject to

    flow         sum of x into v = sum of x out of v at every inner node; the source sends 1
    prefix       E_j - E_{j-1} = sum of e_a x_a over arcs with j_a = j; D_j likewise with d_a
    hosts        sum of n_ah x_a <= N_h + s_h
    flush        T >= T_1 + T_2
    exclusion    sum of x over the stages of a path already simulated <= number of its stages - 1
    bound rows   one for each layer l and family
                     busy    T >= E_l + w             w = M (F + B) + g_0
                     fill    T >= E_L + w             w = (M - 1)(F + B) - (k - 1) F
                     sync    T >= D_l + w             w = M (F + B) + g
                     drain   T >= D_l + E_L - E_l + w  w = (M - 1)(F + B) - (k - 1) F + g - g_0
                     flush   T_1 >= D_L + w,  w = (M - 1) F;      T_2 >= E_L - D_L + w,  w = (M - 1) B
                 where w is short for the sum of w_a x_a over the arcs that cover l, exactly one of which is used;
                 and one for each inner boundary j and family
                     link    T >= E_L + w             w = (M - 1) c
                     both ways   T >= E_j + w         w = 2 (M - 1) c where both directions take a link, else 0
                     pair    T >= E_L + u + w         two neighbouring stages: `pair_loops` of
                                                      :mod:`stagecut.planner.core.schedule`
                     flush   T_1 >= D_L + w,  T_2 >= E_L - D_L + w,  w = (M - 1) c
                 where w sums over the arcs that start at j, and u sums u_a x_a over the arcs that stop at j.

Times are scaled so that T is about 1, since HiGHS has absolute tolerances. The relaxation is the same
program without integrality; its duals of the bound rows and hosts are Lagrangian multipliers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.network.rows import Family, Rows
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.solvers.search.highs import LinearProgram


def stage_program(
    rows: Rows, *, integer: bool, missing_penalty: float | None, excluded: Sequence[Ints] = (), longest: float = np.inf
) -> tuple[LinearProgram, list[slice]]:
    """The program, with columns as in :class:`Columns`; the constraints of each family, and last those of the hosts.

    Parameters
    ----------
    rows
        Scaled so that the iteration time is about 1.
    missing_penalty
        p; None: no host may be missing.
    excluded
        Stage arcs of each path to leave out.
    longest
        Upper limit of T.
    """
    columns = columns_of(rows)
    bounds = [bound_rows(rows, columns, family) for family in rows.families]
    blocks = [
        *bounds,
        hosts(rows, columns),
        flow(rows),
        prefix(rows, columns.round_trip, rows.round_trip),
        prefix(rows, columns.forward, rows.forward),
        flush(columns),
        exclusion(excluded),
    ]
    begins = np.cumsum([0, *(len(block.lower) for block in blocks)])
    cost, upper = np.zeros(columns.total), np.full(columns.total, np.inf)
    cost[columns.target] = 1.0
    cost[columns.missing :] = missing_penalty or 0.0
    upper[: columns.round_trip] = 1.0
    upper[columns.target] = longest
    if missing_penalty is None:
        upper[columns.missing :] = 0.0
    program = LinearProgram(
        cost=cost,
        lower=np.zeros(columns.total),
        upper=upper,
        row_lower=np.concatenate([block.lower for block in blocks]),
        row_upper=np.concatenate([block.upper for block in blocks]),
        entry_row=np.concatenate([block.rows + begin for block, begin in zip(blocks, begins, strict=False)]),
        entry_column=np.concatenate([block.columns for block in blocks]),
        entry_value=np.concatenate([block.values for block in blocks]),
        num_integer=columns.round_trip if integer else 0,
    )
    slices = [slice(int(first), int(last)) for first, last in itertools.pairwise(begins)]
    return program, slices[: len(bounds) + 1]


def path_of(network: StageNetwork, columns: Floats) -> Ints:
    """Arcs of the path in an integer solution, in order."""
    used = np.flatnonzero(columns[: len(network.arcs)] > 0.5)
    return used[np.argsort(network.arcs.tail[used])]


class Columns(NamedTuple):
    """First column of each kind of variable; the arcs x come first."""

    round_trip: int
    """E_1."""
    forward: int
    """D_1."""
    target: int
    """T, followed by T_1 and T_2 if there are halves."""
    missing: int
    """Missing hosts of class 0."""
    total: int
    """Number of columns."""


def columns_of(rows: Rows) -> Columns:
    """The columns of the program over these rows."""
    network = rows.network
    kinds = (network.num_layers, network.num_layers, rows.num_targets, len(network.cluster.servers))
    return Columns(*itertools.accumulate(kinds, initial=len(network.arcs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintBlock:
    """Constraints of one kind: lower <= A x <= upper, with the entries of A by row (from 0) and column."""

    rows: Ints
    columns: Ints
    values: Floats
    lower: Floats
    upper: Floats


def flow(rows: Rows) -> ConstraintBlock:
    """Sum of x out of v - sum of x into v = 1 at the source, 0 at every inner node v."""
    arcs, sink = rows.network.arcs, rows.network.graph.num_nodes - 1
    nodes, compact = np.unique(np.concatenate((arcs.tail, arcs.head)), return_inverse=True)
    tails, heads = compact[: len(arcs)], compact[len(arcs) :]
    index = np.arange(len(arcs))
    inner = arcs.head != sink
    limits = np.where(nodes[nodes != sink] == 0, 1.0, 0.0)
    return ConstraintBlock(
        rows=np.concatenate((tails, heads[inner])),
        columns=np.concatenate((index, index[inner])),
        values=np.concatenate((np.ones(len(arcs)), -np.ones(int(inner.sum())))),
        lower=limits,
        upper=limits,
    )


def prefix(rows: Rows, first_column: int, share: Floats) -> ConstraintBlock:
    """E_j - E_{j-1} - sum of e_a x_a over arcs with j_a = j is 0; `share` is e, or d for D."""
    arcs = rows.network.arcs
    counted = np.flatnonzero((share != 0) & (arcs.stop > 0))
    layers, zeros = np.arange(rows.network.num_layers), np.zeros(rows.network.num_layers)
    return ConstraintBlock(
        rows=np.concatenate((layers, layers[1:], arcs.stop[counted] - 1)),
        columns=np.concatenate((first_column + layers, first_column + layers[:-1], counted)),
        values=np.concatenate((np.ones(len(layers)), -np.ones(len(layers) - 1), -share[counted])),
        lower=zeros,
        upper=zeros,
    )


def hosts(rows: Rows, columns: Columns) -> ConstraintBlock:
    """Sum of n_ah x_a - s_h <= N_h."""
    arcs, servers = rows.network.arcs, rows.network.cluster.servers
    opening = np.flatnonzero(arcs.opened_hosts > 0)
    classes = np.arange(len(servers))
    return ConstraintBlock(
        rows=np.concatenate((arcs.opened_class[opening], classes)),
        columns=np.concatenate((opening, columns.missing + classes)),
        values=np.concatenate((arcs.opened_hosts[opening].astype(float), -np.ones(len(servers)))),
        lower=np.full(len(servers), -np.inf),
        upper=np.array([float(server.count) for server in servers]),
    )


def bound_rows(rows: Rows, columns: Columns, family: Family) -> ConstraintBlock:
    """T - e E_l - e' E_L - d D_l - d' D_L - w - u >= 0, one row of a family for each layer or inner boundary.

    e, e', d and d' are the family's coefficients of the prefixes; half a flush has T_1 or T_2 in place of T.
    """
    arcs, num_layers = rows.network.arcs, rows.network.num_layers
    used = np.arange(num_layers)[family.indices(num_layers)]
    number = np.full(num_layers + 1, -1)
    number[used] = np.arange(len(used))
    parts = [(number[used], np.full(len(used), columns.target + family.target), np.ones(len(used)))]
    for first_column, before, total in (
        (columns.round_trip, family.round_trip_before, family.round_trip_total),
        (columns.forward, family.forward_before, family.forward_total),
    ):
        inside = used[used > 0]
        if before:
            parts.append((number[inside], first_column + inside - 1, np.full(len(inside), -float(before))))
        if total:
            last = np.full(len(used), first_column + num_layers - 1)
            parts.append((number[used], last, np.full(len(used), -float(total))))
    if family.ending_s is None:
        parts.append(_cover_entries(arcs.start, arcs.stop, family.cost_s))
    else:
        for boundary, extra_s in ((arcs.stop, family.ending_s), (arcs.start, family.cost_s)):
            counted = np.flatnonzero((extra_s != 0) & (number[boundary] >= 0))
            parts.append((number[boundary[counted]], counted, -extra_s[counted]))
    return ConstraintBlock(
        rows=np.concatenate([part[0] for part in parts]),
        columns=np.concatenate([part[1] for part in parts]),
        values=np.concatenate([part[2] for part in parts]),
        lower=np.zeros(len(used)),
        upper=np.full(len(used), np.inf),
    )


def _cover_entries(start: Ints, stop: Ints, cost_s: Floats) -> tuple[Ints, Ints, Floats]:
    """Entry -w_a of every arc in the row of every layer it covers."""
    counted = np.flatnonzero(cost_s != 0)
    lengths = (stop - start)[counted]
    arcs = np.repeat(counted, lengths)
    offsets = np.arange(len(arcs)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return start[arcs] + offsets, arcs, -cost_s[arcs]


def flush(columns: Columns) -> ConstraintBlock:
    """T - T_1 - T_2 >= 0; no row where there are no halves."""
    halved = columns.missing > columns.target + 1
    return ConstraintBlock(
        rows=np.zeros(3 * halved, dtype=np.int64),
        columns=columns.target + np.arange(3 * halved),
        values=np.array([1.0, -1.0, -1.0])[: 3 * halved],
        lower=np.zeros(int(halved)),
        upper=np.full(int(halved), np.inf),
    )


def exclusion(excluded: Sequence[Ints]) -> ConstraintBlock:
    """Sum of x over the stages of a path <= their number - 1, for each path: at least one stage differs."""
    lengths = [len(stage_arcs) for stage_arcs in excluded]
    return ConstraintBlock(
        rows=np.repeat(np.arange(len(excluded)), lengths),
        columns=np.concatenate([np.empty(0, dtype=np.int64), *excluded]),
        values=np.ones(sum(lengths)),
        lower=np.full(len(excluded), -np.inf),
        upper=np.array(lengths, dtype=float) - 1.0,
    )
