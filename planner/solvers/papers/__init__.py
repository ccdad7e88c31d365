"""Planners of published papers, one file each, with the objective of the paper and what is approximated here.

A planner for identical devices gives `uniform.variants` one function from a variant to a plan and the value of its
objective; `uniform.cluster` and `uniform.intervals` tell it what stages cost. One for unlike devices takes
:mod:`stagecut.planner.solvers.heuristic.sequence_costs`. The searches in `umpipe` choose sizes of sublots, not plans.

All planners for identical devices are approximated alike:

- Every device, link and memory is taken to be as bad as the worst of its kind.
- Every micro-batch size and number of identical pipelines that the job allows is planned for separately, and the
  simulator picks among these plans; the papers are given a micro-batch.
- Servers are filled in the order of the pipeline, since a host holds one contiguous run of stages.
- Recomputation follows the job, and the schedule is 1F1B.
"""
