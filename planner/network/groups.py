"""Device groups that a stage may take."""

from collections.abc import Iterator

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem


def groups_in_host(
    problem: Problem, *, server_class: int, island: int, free: int, micro_batch: int
) -> Iterator[Placement]:
    """Every replicas x tensor_parallel of `free` devices of one island."""
    for degree in problem.tensor_parallel_degrees:
        for replicas in range(1, free // degree + 1):
            if problem.job.allows_replicas(replicas, micro_batch):
                yield Placement(server_class=server_class, island=island, replicas=replicas, tensor_parallel=degree)


def groups_of_hosts(
    problem: Problem, cluster: Cluster, *, server_class: int, num_hosts: int, micro_batch: int
) -> Iterator[Placement]:
    """Every way to take all devices of m >= 2 whole hosts; none in a class with several islands."""
    server = cluster.servers[server_class]
    if len(server.islands) > 1:
        return
    for degree in problem.tensor_parallel_degrees:
        replicas, rest = divmod(num_hosts * server.num_devices, degree)
        if server.num_devices % degree == 0 and rest == 0 and problem.job.allows_replicas(replicas, micro_batch):
            yield Placement(
                server_class=server_class,
                island=0,
                num_hosts=num_hosts,
                replicas=replicas,
                tensor_parallel=degree,
            )
