"""The Lagrangian bound: on every plan, and on every plan through each arc.

Charging each row that bounds T with a multiplier >= 0 (summing to 1 over the rows of T) and each
host of class h with mu_h >= 0 leaves a shortest path problem:

    T >= min over paths of sum of (sum over rows of multiplier x coefficient of the arc + mu_h x hosts opened)
         - sum over h of mu_h N_h.

Any such multipliers give a valid bound, so approximate ones are safe; the duals of the linear
relaxation give its value.
"""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.network.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipliers:
    """One set of multipliers."""

    of_rows: Floats
    """Shape (families, L + 1); see :meth:`stagecut.planner.network.rows.Rows.arc_costs`."""
    of_hosts: Floats
    """mu, shape (server classes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """Bounds that one set of multipliers proves."""

    multipliers: Multipliers
    through_s: Floats
    """For each arc: no plan that uses it is faster; shape (A,)."""
    costs_s: Floats
    """Length of each arc in the shortest path problem, shape (A,)."""

    @property
    def bound_s(self) -> float:
        """No plan is faster."""
        return float(self.through_s.min(initial=np.inf))


def price(rows: Rows, multipliers: Multipliers) -> Priced:
    """Bounds proven by a set of multipliers, recomputed from the arcs and rounded down."""
    network = rows.network
    arcs = network.arcs
    costs_s = rows.arc_costs(multipliers.of_rows)
    opening = arcs.opened_hosts > 0
    costs_s[opening] += multipliers.of_hosts[arcs.opened_class[opening]] * arcs.opened_hosts[opening]
    # limits ends with the fewest stages, which have no multiplier here.
    through_s = network.graph.through(costs_s) - float(multipliers.of_hosts @ network.limits[:-1])
    return Priced(multipliers=multipliers, through_s=through_s - PATH_SUM * np.abs(through_s), costs_s=costs_s)


def single_family(rows: Rows, name: str) -> Multipliers:
    """All weight on one family of layers, spread evenly over its rows."""
    num_layers = rows.network.num_layers
    of_rows = np.zeros((len(rows.families), num_layers + 1))
    index = [family.name for family in rows.families].index(name)
    of_rows[index, :num_layers] = 1.0 / num_layers
    return Multipliers(of_rows=of_rows, of_hosts=np.zeros(len(rows.network.cluster.servers)))
