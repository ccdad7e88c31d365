"""Every tolerance of the planner, on one page, with the reason for its size.

All are relative to the quantity compared unless their name carries a unit.
"""

# --- io, report, cli ---

# --- cost, simulator ---

# --- network, exact solvers ---

# --- interleaved solver ---

# --- heuristics, reference solvers, HiGHS ---

EQUAL_TIMES = 5e-10
"""Times that differ by less count as equal: sums of the same few thousand terms in different orders differ by less."""
FEASIBILITY = 1e-9
"""Primal and dual feasibility of rows in programs solved to optimality; times are scaled to about 1 there."""
INTEGRALITY = 1e-7
"""Integrality in the same programs: HiGHS errs more often with a tighter one and fails more often with a looser one."""
MEMORY_ROUNDING = 1e-9
"""Slack of memory rows in the textbook program, so that rounding never cuts off a stage that just fits."""
PREFIX_ROUNDING = 1e-12
"""Differences of prefix sums, relative to the largest sum: a stage that just meets its limit must not be lost."""
ALMOST_NO_TIME_S = 1e-300
"""Replaces a time of 0 where it divides; large enough for a sum of its inverses to be finite."""

# --- planners of papers ---
