r"""A choice graph as a mixed-integer program, with edges in their strong form.

Sets: nodes v with options p, edges (u, v) with pairs (p, q), moments t that can overflow. Options and pairs that are
impossible, or dearer than any choice of interest can afford, are left out.

.. math::

    \min & \sum_p c_p s_p + \sum_{pq} w_{pq} e_{pq} \\
    & \sum_{p \in v} s_p = 1 & \text{for every node } v \\
    & \sum_q e_{pq} = s_p, \quad \sum_p e_{pq} = s_q & \text{for every edge, option } p \text{ and option } q \\
    & \sum_{v \ni t} \sum_{p \in v} (m_p - \min_v m)\, s_p \le \text{room}_t & \text{for every moment } t \\
    & s_p \in \{0, 1\}, \quad e_{pq} \ge 0

The edge rows describe the convex hull of one edge (its pairs and their options), so the linear relaxation is integral
on trees without moments; the weak form, e_pq >= s_p + s_q - 1, is not even so on one edge.
"""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import Moments
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.solvers.search.highs import LinearProgram


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """The pairs of options of the edges, as flat arrays."""

    position: Ints
    """Where `pair_cost` holds each."""
    edge: Ints
    first: Ints
    """Option of u, as a position in `cost`."""
    second: Ints
    """Option of v."""

    def __len__(self) -> int:
        return len(self.edge)

    def only(self, kept: Bools) -> "Pairs":
        """Some of them."""
        return Pairs(
            position=self.position[kept], edge=self.edge[kept], first=self.first[kept], second=self.second[kept]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows of a program over the columns s, then e, as entries."""

    row: Ints
    column: Ints
    value: Floats
    lower: Floats
    upper: Floats


def all_pairs(graph: ChoiceGraph) -> Pairs:
    """Every pair of options of every edge."""
    position = np.arange(len(graph.pair_cost))
    edge = np.repeat(np.arange(graph.num_edges), np.diff(graph.first_pair))
    within = position - graph.first_pair[edge]
    u, v = graph.ends[edge, 0], graph.ends[edge, 1]
    return Pairs(
        position=position,
        edge=edge,
        first=graph.first_option[u] + within // graph.num_options[v],
        second=graph.first_option[v] + within % graph.num_options[v],
    )


def affordable(graph: ChoiceGraph, pairs: Pairs, upper: int | None) -> tuple[Bools, Pairs]:
    """Which options and pairs a choice of cost `upper` or less may contain.

    A choice pays at least the least cost of every node and edge; one that contains an option or pair pays its excess
    over the least on top.
    """
    options = graph.cost < IMPOSSIBLE
    pairs = pairs.only(graph.pair_cost[pairs.position] < IMPOSSIBLE)
    pairs = pairs.only(options[pairs.first] & options[pairs.second])
    if upper is None:
        return options, pairs
    least_cost = _least(graph.cost, graph.first_option)
    pair_cost, least_pair = graph.pair_cost[pairs.position], _least(graph.pair_cost, graph.first_pair)
    spare = upper - sum(least_cost.tolist()) - sum(least_pair.tolist())
    options &= graph.cost - np.repeat(least_cost, graph.num_options) <= spare
    pairs = pairs.only(pair_cost - least_pair[pairs.edge] <= spare)
    return options, pairs.only(options[pairs.first] & options[pairs.second])


def strong_program(
    graph: ChoiceGraph, moments: Moments, *, options: Bools, pairs: Pairs, scale: float, families: tuple[Rows, ...] = ()
) -> LinearProgram:
    """The program of the module's docstring, costs divided by a scale; columns are all options, then the pairs."""
    rows = stacked(
        node_rows(graph), edge_rows(graph, pairs, 0), edge_rows(graph, pairs, 1), moment_rows(graph, moments), *families
    )
    return LinearProgram(
        cost=np.concatenate((np.where(options, graph.cost, 0), graph.pair_cost[pairs.position])) / scale,
        lower=np.zeros(len(options) + len(pairs)),
        upper=np.concatenate((options, np.ones(len(pairs)))).astype(np.float64),
        row_lower=rows.lower,
        row_upper=rows.upper,
        entry_row=rows.row,
        entry_column=rows.column,
        entry_value=rows.value,
        num_integer=len(options),
    )


def node_rows(graph: ChoiceGraph) -> Rows:
    """Sum over the options of a node: s_p = 1."""
    node, one = np.repeat(np.arange(graph.num_nodes), graph.num_options), np.ones(graph.num_nodes)
    return Rows(row=node, column=np.arange(len(node)), value=np.ones(len(node)), lower=one, upper=one)


def edge_rows(graph: ChoiceGraph, pairs: Pairs, end: int) -> Rows:
    """Sum over the other end's options: e_pq = s_p, for every edge and every option of one of its ends."""
    node = graph.ends[:, end]
    first_row = np.concatenate(([0], np.cumsum(graph.num_options[node])))
    row = np.arange(first_row[-1])
    own_edge = np.repeat(np.arange(graph.num_edges), graph.num_options[node])
    own_option = graph.first_option[node[own_edge]] + row - first_row[own_edge]
    option = pairs.second if end else pairs.first
    return Rows(
        row=np.concatenate((first_row[pairs.edge] + option - graph.first_option[node[pairs.edge]], row)),
        column=np.concatenate((len(graph.cost) + np.arange(len(pairs)), own_option)),
        value=np.concatenate((np.ones(len(pairs)), -np.ones(len(row)))),
        lower=np.zeros(len(row)),
        upper=np.zeros(len(row)),
    )


def moment_rows(graph: ChoiceGraph, moments: Moments) -> Rows:
    """Sum over the members: (usage - least usage) s_p <= room, divided by the largest coefficient."""
    row, option, above = _usage_entries(graph, moments)
    scale = row_scale(graph, moments)
    return Rows(
        row=row,
        column=option,
        value=above / scale[row],
        lower=np.full(moments.num_moments, -np.inf),
        upper=moments.room / scale,
    )


def row_scale(graph: ChoiceGraph, moments: Moments) -> Floats:
    """(moments,): the largest coefficient of every moment."""
    row, _, above = _usage_entries(graph, moments)
    scale = np.ones(moments.num_moments)
    np.maximum.at(scale, row, above)
    return scale


def _usage_entries(graph: ChoiceGraph, moments: Moments) -> tuple[Ints, Ints, Ints]:
    """Moment, option and usage above the least of every entry that is not zero."""
    first, member = moments.members()
    count = graph.num_options[member]
    row = np.repeat(np.repeat(np.arange(moments.num_moments), np.diff(first)), count)
    option = np.repeat(graph.first_option[member] - np.cumsum(count) + count, count) + np.arange(count.sum())
    above = graph.usage[option] - np.repeat(moments.least_usage[member], count)
    return row[above > 0], option[above > 0], above[above > 0]


def _least(values: Ints, first: Ints) -> Ints:
    least: Ints = np.minimum.reduceat(values, first[:-1]) if len(first) > 1 else values
    return least


def stacked(*families: Rows) -> Rows:
    """Families of rows, one below the other."""
    offsets = np.cumsum([0, *(len(each.lower) for each in families)])
    return Rows(
        row=np.concatenate([each.row + offset for each, offset in zip(families, offsets, strict=False)]),
        column=np.concatenate([each.column for each in families]),
        value=np.concatenate([each.value for each in families]),
        lower=np.concatenate([each.lower for each in families]),
        upper=np.concatenate([each.upper for each in families]),
    )
