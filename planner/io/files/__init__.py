"""The kinds of files: model profile, cluster, job, plan, run record and history of runs."""
