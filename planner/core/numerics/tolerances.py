"""Every numerical tolerance of the planner, with the reason for its size.

All are relative to the quantity compared unless their name carries a unit.
"""

# --- io, report, cli ---

CANCELLED_SUM = 1e-12
"""A running sum of tensor sizes below this fraction of the largest one is rounding error, and stands for zero.

A few thousand additions in double precision, each with a relative error of 1e-16, leave less than that, and no
tensor that matters is that much smaller than another.
"""
RECOMPUTED = 1e-9
"""Two values of one quantity: another version of numpy may sum in another order. A gap up to this is no gap."""
NOTICEABLE = 1e-6
"""Share of a time below which a difference is not worth reporting; slack when a share is rounded up for display."""

# --- cost, simulator ---

LEAST_SQUARES = 1e-12
"""Descents and distances from the least value that count as zero: what remains of the rounding of normal equations."""
WORTHWHILE_SLICING = 1e-9
"""What halving one more micro-batch must save: more than rounding, less than any action takes."""
EQUAL_STATES = 1e-9
"""States of a run of waves whose times differ by less, relative to the period between them, are one: a run of a
million additions is off by less than 1e-10, and no drift of 1e-9 per period shows in a throughput.
"""

# --- network, exact solvers ---
PATH_SUM = 1e-10
"""Bounds from sums along a path are lowered by this. A sum of n positive doubles is off by n x 1.1e-16 at most:
1e-13 for a thousand terms, and prices subtract sums of the same size; 1e-10 leaves ample room."""
LABEL_SUM = 1e-12
"""Labels add the way to an arc and the way on, so a path's sums differ by their order only: 1e-13 for a thousand
terms. Not larger, since paths that keep a limit exactly must be told from those that miss it."""
PREFIX_SUM = 1e-9
"""A stage's work is a difference of prefix sums, which cancel: one that takes exactly the limit must not be lost."""
MIP_BOUND = 1e-6
"""Bounds that rest on HiGHS are lowered by this: ten times its loosest tolerance (1e-7, integrality)."""

# --- interleaved solver ---

REACHED_LIMIT = 1e-10
"""Bounds this near a limit count as reaching it, so that plans equal to the best are not all looked at; less than the
smallest gap anyone asks for, more than the rounding of rows."""
LEAST_SCALE_S = 1e-12
"""Replaces an iteration time of 0 s where a linear program is scaled by it; far below any real iteration time."""

# --- heuristics, reference solvers, HiGHS ---

EQUAL_TIMES = 5e-10
"""Times that differ by less count as equal: sums of the same few thousand terms in different orders differ by less."""
FEASIBILITY = 1e-9
"""Primal and dual feasibility of rows in programs solved to optimality; times are scaled to about 1 there."""
INTEGRALITY = 1e-7
"""Integrality in the same programs: HiGHS errs more often with a tighter one and fails more often with a looser one."""
MEMORY_ROUNDING = 1e-9
"""Slack of sums of bytes in relaxations and programs, so that rounding never cuts off a stage that just fits."""
PREFIX_ROUNDING = 1e-12
"""Differences of prefix sums, relative to the largest sum: a stage that just meets its limit must not be lost."""
ALMOST_ZERO = 1e-300
"""Replaces a time or size of 0 as a divisor; large enough for a sum of its inverses to be finite."""

# --- planners of papers ---

AUTOPIPE_H_LEAST_GAIN = 1e-4
"""Part of the iteration time that a step of the search for a device mapping must save: the search stops
among mappings that no measurement could tell apart."""
EQUAL_PAPER_TIMES = 1e-9
"""AutoPipe and HetPipe take times that differ by less to be equal: the same terms in other orders of a few thousand
additions differ by some 1e-13, and no two distinct measurements agree to nine digits."""
EQUAL_WEIGHTS = 1e-12
"""Two sums of the parameters of the same layers, as part of those of the model: only the order of additions differs."""
ALPA_LATENCY = 1e-4
"""Alpa's epsilon: latencies closer than this part of the best are not told apart, which keeps the programs few."""
PIPER_LOAD = 1e-6
"""The bisection of Piper's load ends this near to the least: about 20 programs, below any difference that counts."""
HETPIPE_BRACKET = 1e-3
"""Width at which HetPipe's bisection hands over to its program, and the least gain for which another order of
devices counts: small enough that few runs of layers stay in the program."""
HETPIPE_GAP = 1e-4
"""Relative gap at which HetPipe's program is solved: the default of CPLEX."""
