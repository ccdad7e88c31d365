"""Prices of devices and servers."""

import pytest

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.prices import with_prices
from tests.catalogue import kinds

CLUSTER = Cluster(
    name="two",
    device_types=kinds(gpu=1.0, host=1.0),
    servers=tuple(Server(name=name, islands=(Island(device_type="gpu", count=1),)) for name in ("host", "rack")),
)


def test_names_are_those_of_device_types_first_then_of_servers():
    """`host` is a device type and a server; `rack` only a server."""
    priced = with_prices(CLUSTER, {"host": 1.0, "rack": 2.0})
    assert [each.price_per_hour for each in priced.device_types] == [None, 1.0]
    assert [each.price_per_hour for each in priced.servers] == [None, 2.0]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(BadInputError, match=r"'gpus' is neither a device type nor a server .* known: gpu, host, rack"):
        with_prices(CLUSTER, {"gpus": 1.0})


def test_a_price_is_not_negative():
    with pytest.raises(BadInputError, match="price_per_hour"):
        DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=1.0, price_per_hour=-1.0)
