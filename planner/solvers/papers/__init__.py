"""Planners of published papers, one file each, with the objective of the paper and what is approximated here.

A planner for identical devices gives `uniform.variants` one function from a variant to a plan and the value of its
objective; `uniform.cluster` and `uniform.intervals` tell it what stages cost. One for unlike devices takes
:mod:`planner.solvers.heuristic.sequence_costs`. The folders `autopipe_*` belong to the two files of that name.
"""
