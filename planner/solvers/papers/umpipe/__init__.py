"""UMPIPE's searches for a micro-batch size of every process, a file each (IEEE TPDS 36(2), 2025).

All act on the same lines of processes, in the order of time, and are evaluated by the same recurrence: see
:mod:`stagecut.planner.sublots.staircases`. What is the paper's and what is ours is told in docs/papers/umpipe.md.
"""
