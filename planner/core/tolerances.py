"""Every tolerance of the planner, on one page, with the reason for its size.

All are relative to the quantity compared unless their name carries a unit.
"""

# --- io, report, cli ---

# --- cost, simulator ---

# --- network, exact solvers ---

# --- interleaved solver ---

# --- heuristics, reference solvers, HiGHS ---

# --- planners of papers ---
