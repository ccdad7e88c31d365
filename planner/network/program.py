"""The MIP over a stage network, as arrays.

Sets: arcs a (a stage [i, j) on a placement, or a transfer at a boundary), layers l, boundaries j,
server classes h with N_h hosts.

Variables: x_a in {0, 1}; the prefixes E_l and D_l; the iteration time T (and the halves T1, T2 of a
flush); s_h >= 0, the hosts missing in class h, only in a relaxation that pays for them.

    min T + penalty * sum of s_h
    flow:      sum of x over arcs into v = sum of x over arcs out of v, for every inner node v;
               sum of x over arcs out of the source = 1
    prefix:    E_l - E_{l-1} = sum of round_trip_a x_a over arcs with stop = l, and D_l alike
    hosts:     sum of opened_hosts_a x_a over arcs that open class h <= N_h + s_h
    rows:      T_target - e E_l - e' E_L - d D_l - d' D_L - sum of cover_a x_a over arcs covering l >= 0,
               and alike for boundaries: one constraint per row of :mod:`planner.network.rows`
    flush:     T >= T1 + T2
    exclusion: sum of x over the stage arcs of a path already simulated <= its number of stages - 1
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.network.rows import Family, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Constraints of one kind: entries with rows counted from 0, and the limits of each row."""

    rows: Ints
    columns: Ints
    values: Floats
    lower: Floats
    upper: Floats

    @property
    def num_rows(self) -> int:
        """Constraints in the block."""
        return len(self.lower)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Where each kind of variable lives: arcs first, then E, D, targets, missing hosts."""

    num_arcs: int
    num_layers: int
    num_targets: int
    num_classes: int

    @property
    def round_trip(self) -> int:
        """Column of E_1."""
        return self.num_arcs

    @property
    def forward(self) -> int:
        """Column of D_1."""
        return self.round_trip + self.num_layers

    @property
    def target(self) -> int:
        """Column of T."""
        return self.forward + self.num_layers

    @property
    def missing(self) -> int:
        """Column of the hosts missing in class 0."""
        return self.target + self.num_targets

    @property
    def total(self) -> int:
        """Number of columns."""
        return self.missing + self.num_classes


def columns_of(rows: Rows) -> Columns:
    """The column layout of the program over these rows."""
    network = rows.network
    return Columns(
        num_arcs=len(network.arcs),
        num_layers=network.num_layers,
        num_targets=rows.num_targets,
        num_classes=len(network.cluster.servers),
    )


def flow(rows: Rows) -> Block:
    """Every inner node passes on what it gets, and the source sends one."""
    arcs, sink = rows.network.arcs, rows.network.graph.num_nodes - 1
    nodes, compact = np.unique(np.concatenate((arcs.tail, arcs.head)), return_inverse=True)
    tails, heads = compact[: len(arcs)], compact[len(arcs) :]
    index = np.arange(len(arcs))
    inner = arcs.head != sink
    limits = np.where(nodes[nodes != sink] == 0, 1.0, 0.0)
    return Block(
        rows=np.concatenate((tails, heads[inner])),
        columns=np.concatenate((index, index[inner])),
        values=np.concatenate((np.ones(len(arcs)), -np.ones(int(inner.sum())))),
        lower=limits,
        upper=limits,
    )


def prefix(rows: Rows, columns: Columns, first_column: int, share: Floats) -> Block:
    """One prefix variable per layer end, each the one before plus the arcs that stop there."""
    arcs = rows.network.arcs
    counted = np.flatnonzero((share != 0) & (arcs.stop > 0))
    layers = np.arange(columns.num_layers)
    zeros = np.zeros(columns.num_layers)
    return Block(
        rows=np.concatenate((layers, layers[1:], arcs.stop[counted] - 1)),
        columns=np.concatenate((first_column + layers, first_column + layers[:-1], counted)),
        values=np.concatenate((np.ones(len(layers)), -np.ones(len(layers) - 1), -share[counted])),
        lower=zeros,
        upper=zeros,
    )


def hosts(rows: Rows, columns: Columns) -> Block:
    """No more hosts of a class are opened than there are, save those paid for as missing."""
    arcs, servers = rows.network.arcs, rows.network.cluster.servers
    opening = np.flatnonzero(arcs.opened_hosts > 0)
    classes = np.arange(len(servers))
    return Block(
        rows=np.concatenate((arcs.opened_class[opening], classes)),
        columns=np.concatenate((opening, columns.missing + classes)),
        values=np.concatenate((arcs.opened_hosts[opening].astype(float), -np.ones(len(servers)))),
        lower=np.full(len(servers), -np.inf),
        upper=np.array([float(server.count) for server in servers]),
    )


def family_rows(rows: Rows, columns: Columns, family: Family) -> Block:
    """One bound row per layer or inner boundary of a family."""
    arcs, num_layers = rows.network.arcs, columns.num_layers
    used = np.arange(num_layers) if family.of_layers else np.arange(1, num_layers)
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
    if family.cover is not None:
        parts.append(_cover_entries(arcs.start, arcs.stop, family.cover))
    for place, extra in ((arcs.stop, family.ending), (arcs.start, family.starting)):
        if extra is not None:
            counted = np.flatnonzero((extra != 0) & (number[place] >= 0))
            parts.append((number[place[counted]], counted, -extra[counted]))
    return Block(
        rows=np.concatenate([part[0] for part in parts]),
        columns=np.concatenate([part[1] for part in parts]),
        values=np.concatenate([part[2] for part in parts]),
        lower=np.zeros(len(used)),
        upper=np.full(len(used), np.inf),
    )


def flush(columns: Columns) -> Block:
    """The iteration takes at least both halves of a flush; nothing where there are none."""
    targets = columns.target + np.arange(columns.num_targets)
    count = 1 if columns.num_targets > 1 else 0
    return Block(
        rows=np.zeros(count * len(targets), dtype=np.int64),
        columns=targets[: count * len(targets)],
        values=np.where(targets == columns.target, 1.0, -1.0)[: count * len(targets)],
        lower=np.zeros(count),
        upper=np.full(count, np.inf),
    )


def exclusion(excluded: Sequence[Ints]) -> Block:
    """At least one stage differs from each path already simulated."""
    lengths = [len(stage_arcs) for stage_arcs in excluded]
    return Block(
        rows=np.repeat(np.arange(len(excluded)), lengths),
        columns=np.concatenate([np.empty(0, dtype=np.int64), *excluded]),
        values=np.ones(sum(lengths)),
        lower=np.full(len(excluded), -np.inf),
        upper=np.array(lengths, dtype=float) - 1.0,
    )


def _cover_entries(start: Ints, stop: Ints, cover: Floats) -> tuple[Ints, Ints, Floats]:
    """Entry -cover of every arc in the row of every layer it covers."""
    counted = np.flatnonzero(cover != 0)
    lengths = (stop - start)[counted]
    arcs = np.repeat(counted, lengths)
    offsets = np.arange(len(arcs)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return start[arcs] + offsets, arcs, -cover[arcs]
