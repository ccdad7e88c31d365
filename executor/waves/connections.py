"""The process groups of a run through waves."""

from concurrent.futures import Future
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.ranks.failures import FailureKind, WaitError, failure_report
from stagecut.executor.ranks.rank_process import end_hung
from stagecut.executor.ranks.watched_transport import WatchedTransport
from stagecut.executor.ranks.world import World
from stagecut.executor.transport.distributed import DistributedTransport
from stagecut.executor.transport.interface import Transport
from stagecut.executor.transport.threads import Hub
from stagecut.executor.waves.carriers.channels import AllReduceChannel, Channel, Reducer, SharedSums, Total
from stagecut.executor.waves.carriers.flat import FlatLayout
from stagecut.executor.waves.carriers.server import LONG, RemoteChannel, Waiting, WaveServer, Wire, waiting_alone
from stagecut.executor.waves.carriers.shards import build_shard
from stagecut.executor.waves.messages.host_transport import HostTransport
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Part, WaveRole


class Connections:
    """The process groups of a run, made by all ranks in one order, and this rank's use of them."""

    def __init__(
        self, execution: WaveExecution, role: WaveRole, *, drops: bool, world: World | None, timeout_s: float
    ) -> None:
        self._execution, self._role, self._drops = execution, role, drops
        self._world, self._timeout_s = world, timeout_s
        self._waiting: Waiting = waiting_alone if world is None else world.wait_graph.waiting_for
        layout, plan = execution.layout, execution.plan
        self._wires: dict[tuple[str, int], Wire] = {}
        """By the server's host and the rank of the stage."""
        self._sums: dict[tuple[int, ...], dist.ProcessGroup] = {}
        """By the layers that are summed."""
        if layout.world_size == 1:
            return
        parts = [
            part
            for worker, own in enumerate(plan.workers)
            for stage in range(own.num_stages)
            for part in layout.parts(worker, stage)
        ]
        for part in dict.fromkeys(part for part in parts if part.owner == ""):
            ranks = sorted(layout.rank_of(*member) for member in part.members)
            self._sums[part.layers] = dist.new_group(ranks, timeout=LONG)
        for owner, members in dict.fromkeys((part.owner, part.members) for part in parts if part.owner):
            server = layout.server_of(owner)
            for rank in (layout.rank_of(*member) for member in members):
                group = dist.new_group(sorted((rank, server)), timeout=LONG)
                if role.rank in (rank, server):
                    peer = server if role.rank == rank else rank
                    self._wires[owner, rank] = Wire(group=group, peer=peer)

    def transport(self, device: torch.device) -> Transport:
        """For activations and their gradients."""
        if not dist.is_initialized():
            return Hub(1).transport(0)
        transport: Transport = DistributedTransport(tagged=True, groups=(), pairs=())
        if self._world is not None:
            transport = WatchedTransport(transport, self._world)
        return transport if device.type == "cpu" else HostTransport(transport, device)

    def channel(self, part: Part, layout: FlatLayout, vector: Tensor) -> Channel:
        """For one part of this rank's stage."""
        if part.owner:
            wire = self._wires[part.owner, self._role.rank]
            return RemoteChannel(
                wire, layout.empty, timeout_s=self._timeout_s, waiting=self._waiting, outlives=self._outlives
            )
        return AllReduceChannel(self._reducer(part), vector, self._execution.scheme)

    def server(self) -> WaveServer:
        """The parameter server that this rank is."""
        host = self._role.device
        shard, layout = build_shard(self._execution, host, torch.device("cpu"))
        ranks = {member: self._execution.layout.rank_of(*member) for member in shard.arrived}
        wires = {member: self._wires[host, rank] for member, rank in ranks.items()}
        watch = (lambda _: None) if self._world is None else self._world.wait_graph.waits_for
        return WaveServer(
            self._execution, self._role, shard=shard, layout=layout, wires=wires, drops=self._drops, watch=watch
        )

    def _outlives(self, fault: WaitError) -> bool:
        """End ranks of other workers that hang, if workers may be dropped."""
        report = failure_report(fault, self._role)
        workers = {self._execution.layout.roles[rank].worker for rank in fault.ranks}
        is_hung = report.kind is FailureKind.HUNG and not workers & {None, self._role.worker}
        if self._world is None or not self._drops or not is_hung:
            return False
        end_hung(report, self._world)
        return True

    def _reducer(self, part: Part) -> Reducer:
        if len(part.members) == 1:
            return SharedSums(1).reducer(0)
        ranks = tuple(self._execution.layout.rank_of(*member) for member in part.members if member != self._role.member)
        return _GroupReducer(self._sums[part.layers], ranks, waiting=self._waiting, timeout_s=self._timeout_s)


class _GroupReducer(Reducer):
    """All-reduces of a process group, several at once."""

    def __init__(self, group: dist.ProcessGroup, ranks: tuple[int, ...], *, waiting: Waiting, timeout_s: float) -> None:
        self._group, self._ranks = group, ranks
        self._waiting, self._timeout = waiting, timedelta(seconds=timeout_s)

    def begin(self, wave: int, vector: Tensor) -> Total:
        """See :class:`Reducer`."""
        host = vector.cpu()
        work = dist.all_reduce(host, group=self._group, async_op=True)

        def total() -> Tensor:
            with self._waiting(self._ranks):
                work.wait(self._timeout)
            return host.to(vector.device)

        ended: Future[object] = Future()
        work.get_future().add_done_callback(lambda _: ended.set_result(None))
        return Total(total, ended)
