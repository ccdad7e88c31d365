"""Data every part of the planner shares: model, cluster, job, problem, plan, result."""
