"""Messages of ranks that compute elsewhere than in host memory."""

import torch

from stagecut.executor.transport.threads import Hub
from stagecut.executor.waves.messages.host_transport import HostTransport
from stagecut.executor.waves.messages.mail import message_of
from stagecut.planner.simulator.action_lists import Op


def test_what_is_sent_arrives_in_its_place():
    """Here both memories are the same one."""
    hub = Hub(2)
    sender, receiver = (HostTransport(hub.transport(rank), torch.device("cpu")) for rank in (0, 1))
    message = message_of(Op.FORWARD, 3, stage=0, ends=(0, 1), size=2)
    sent, place = torch.arange(4.0).view(2, 2), torch.zeros(2, 2)
    receiver.expect(message, [place])
    for pending in sender.send(message, [sent.clone()]):
        pending.wait()
    for pending in receiver.receive(message):
        pending.wait()
    assert torch.equal(place, sent)
