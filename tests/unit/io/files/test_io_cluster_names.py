"""Names of the catalogue in cluster files, and cluster files written with them."""

import pytest

from stagecut.planner.core.catalogue import NO_CATALOGUE, Catalogue, LinkUse, NamedLink
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import cluster_of
from stagecut.planner.io.files.cluster_text import cluster_text
from stagecut.planner.io.files.schema import json_schema

GPU = DeviceType(
    name="gpu-16", peak_flops_per_s=((Precision.FP16, 1e14),), memory_bytes=16e9, efficiency=0.5, source="sheet"
)
BUS = NamedLink(name="bus", link=Link(bandwidth_bytes_per_s=16e9, latency_s=1e-5), use=LinkUse.FABRIC, shared=True)
SWITCH = NamedLink(name="switch", link=Link(bandwidth_bytes_per_s=3e11, source="a"), use=LinkUse.FABRIC)
WIRE = NamedLink(name="wire", link=Link(bandwidth_bytes_per_s=1e9, latency_s=2e-5, source="b"), use=LinkUse.INTERFACE)
CATALOGUE = Catalogue(device_types=(GPU,), links=(BUS, SWITCH, WIRE))
HEAD = "schema: 1\nname: c\n"
SERVER = "servers: [{name: s, islands: [{device_type: gpu-16, count: 2}]}]\n"


def read(text, catalogue=CATALOGUE):
    return cluster_of(parse_document(text, file="f"), catalogue)


def complaints_of(text, catalogue=CATALOGUE):
    with pytest.raises(BadInputError) as caught:
        read(text, catalogue)
    return [complaint.removeprefix("f:") for complaint in caught.value.complaints]


def test_device_type_of_the_catalogue_needs_no_definition():
    assert read(HEAD + SERVER).device_types == (GPU,)


def test_definition_in_the_file_wins():
    own = "device_types: [{name: gpu-16, memory_bytes: 8e9}]\n"
    assert read(HEAD + own + SERVER).device_types == (DeviceType(name="gpu-16", peak_flops_per_s=(), memory_bytes=8e9),)


def test_types_of_the_catalogue_follow_those_of_the_file():
    own = "device_types: [{name: other, memory_bytes: 8e9}]\n"
    assert [kind.name for kind in read(HEAD + own + SERVER).device_types] == ["other", "gpu-16"]


def test_link_may_be_named_wherever_it_is_written():
    cluster = read(
        HEAD + "servers:\n- name: s\n  nic: wire\n  bridge: bus\n"
        "  islands: [{device_type: gpu-16, count: 2, fabric: switch}]\n"
        "network: wire\noverrides: [{servers: [s, s], link: bus}]\n"
    )
    (server,) = cluster.servers
    assert (server.nic, server.bridge, server.islands[0].fabric) == (WIRE.link, BUS.link, SWITCH.link)
    assert (cluster.network, cluster.overrides[0].link) == (WIRE.link, BUS.link)


def test_figures_beside_the_name_of_an_override_win():
    """They do not come from the source of the others."""
    cluster = read(HEAD + SERVER + "overrides: [{servers: [s, s], link: wire, latency_s: 1e-3}]\n")
    assert cluster.overrides[0].link == Link(bandwidth_bytes_per_s=1e9, latency_s=1e-3)


@pytest.mark.parametrize(
    ("keys", "shared"),
    [
        ("fabric: bus", True),
        ("fabric: switch", False),
        ("fabric: bus, shared: false", False),
        ("fabric: switch, shared: true", True),
        ("fabric: {bandwidth_bytes_per_s: 1}", False),
    ],
)
def test_fabric_is_shared_as_the_file_says_or_else_the_catalogue(keys, shared):
    cluster = read(HEAD + SERVER.replace("count: 2", f"count: 2, {keys}"))
    assert cluster.servers[0].islands[0].shared is shared


def test_unknown_names_are_told_with_their_lines():
    text = HEAD + (
        "servers:\n- name: s\n  nic: wier\n  bridge: 5\n"
        "  islands: [{device_type: gpu, count: 2, fabric: tube}]\n"
        "overrides:\n- {servers: [s, s], link: wires}\n- {servers: [s, t]}\n"
    )
    assert complaints_of(text) == [
        "5: servers[0].nic: 'wier' is not one of `plan clusters links`, did you mean 'wire'?",
        "6: servers[0].bridge: must be a mapping or text of 1 to 100 printable characters, got 5",
        "7: servers[0].islands[0].device_type: 'gpu' is not one of this cluster's device types, "
        "nor of `plan clusters types`, did you mean 'gpu-16'?",
        "7: servers[0].islands[0].fabric: 'tube' is not one of `plan clusters links`, known: bus, switch, wire",
        "9: overrides[0].link: 'wires' is not one of `plan clusters links`, did you mean 'wire'?",
        "10: overrides[1].servers[1]: 't' is not one of this cluster's servers, known: s",
        "10: overrides[1].bandwidth_bytes_per_s: is missing, must be bytes per second or 'unlimited', or name a link",
    ]


def test_without_a_catalogue_figures_are_asked_for():
    """So in plan files, which hold everything."""
    server = "servers: [{name: s, nic: wire, islands: [{device_type: a, count: 1}]}]\n"
    text = HEAD + "device_types: [{name: a, memory_bytes: 1}]\n" + server
    expected = "4: servers[0].nic: 'wire' is not known here, where links are given by their figures"
    assert complaints_of(text, NO_CATALOGUE) == [expected]


def test_schema_accepts_names_and_figures():
    parts = json_schema("cluster")
    for owner, key in (("IslandEntry", "fabric"), ("ServerEntry", "nic"), ("ServerEntry", "bridge")):
        accepted = parts["$defs"][owner]["properties"][key]["anyOf"]
        assert [option.get("type", "figures") for option in accepted] == ["figures", "string", "null"]
    assert "device_types" not in parts["required"]
    assert "bandwidth_bytes_per_s" not in parts["$defs"]["OverrideEntry"]["required"]


def test_file_is_written_with_names_and_with_what_has_none():
    own = DeviceType(name="yes", peak_flops_per_s=(), memory_bytes=float("inf"))
    island = Island(device_type="gpu-16", count=2, fabric=BUS.link, shared=True)
    server = Server(name="1e9", islands=(island, Island(device_type="yes", count=1)), nic=WIRE.link)
    cluster = Cluster(name="c", device_types=(own, GPU), servers=(server,))
    text = cluster_text(cluster, CATALOGUE)
    assert "{device_type: gpu-16, count: 2, fabric: bus, shared: true}" in text
    assert "nic: wire\n" in text
    assert 'name: "1e9"\n' in text
    assert "100000000000000" not in text
    assert read(text) == cluster


def test_types_in_another_order_than_of_use_are_all_written():
    """Otherwise they would be read in order of use."""
    own = DeviceType(name="a", peak_flops_per_s=(), memory_bytes=1.0)
    server = Server(name="s", islands=(Island(device_type="gpu-16", count=1), Island(device_type="a", count=1)))
    cluster = Cluster(name="c", device_types=(GPU, own), servers=(server,))
    text = cluster_text(cluster, CATALOGUE)
    assert "sheet" in text
    assert read(text) == cluster
