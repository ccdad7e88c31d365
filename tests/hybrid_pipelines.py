"""Every pipeline of replicated stages on equal servers, one by one, for planners that search among these."""

from typing import NamedTuple


class HybridStage(NamedTuple):
    """A stage on devices of one server, or on several whole servers."""

    start: int
    stop: int
    replicas: int
    opens: bool
    """Whether it is on another server than the stage before."""


def hybrid_pipelines(num_layers, num_servers, devices_per_server, replicas):
    """All of them, each a tuple of stages."""
    return _rest(num_layers, num_servers, devices_per_server, replicas, start=0, free=0)


def _rest(num_layers, servers, size, replicas, *, start, free):
    if start == num_layers:
        yield ()
        return
    for stop in range(start + 1, num_layers + 1):
        for number in replicas:
            for opens, servers_left, devices_left in _places(number, servers, size, free):
                stage = HybridStage(start=start, stop=stop, replicas=number, opens=opens)
                for rest in _rest(num_layers, servers_left, size, replicas, start=stop, free=devices_left):
                    yield (stage, *rest)


def _places(number, servers, size, free):
    """Places for a stage: beside the previous stage, on a server of its own, or on several servers."""
    if number <= free:
        yield False, servers, free - number
    if number <= size and servers > 0:
        yield True, servers - 1, size - number
    if number > size and number % size == 0 and number // size <= servers:
        yield True, servers - number // size, 0


def occupied(pipeline, size):
    """Servers taken, and devices in use on the first of them."""
    servers = sum(max(1, stage.replicas // size) for stage in pipeline if stage.opens)
    used = 0
    for index, stage in enumerate(pipeline):
        if index and stage.opens:
            break
        used += min(stage.replicas, size)
    return servers, used
