"""Data shared by every part of the planner: model, cluster, job, problem, plan, result."""
