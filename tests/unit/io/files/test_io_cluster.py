"""Cluster files."""

import math

from stagecut.planner.core.cluster import UNLIMITED, Link
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import cluster_of

TYPES = "schema: 1\nname: c\ndevice_types:\n- {name: V100, memory_bytes: unlimited}\n"


def read(text):
    return cluster_of(parse_document(text, file="f"))


def test_defaults_are_those_of_the_core():
    cluster = read(TYPES + "servers:\n- {name: s, islands: [{device_type: V100, count: 2}]}\n")
    kind, server = cluster.device_types[0], cluster.servers[0]
    assert (kind.memory_bytes, kind.memory_bandwidth_bytes_per_s, kind.efficiency) == (math.inf, math.inf, 1.0)
    assert (server.count, server.nic, server.bridge, server.islands[0].shared) == (1, UNLIMITED, None, False)
    assert (cluster.network, cluster.overrides) == (UNLIMITED, ())


def test_every_link_is_read():
    server = (
        "servers:\n- name: s\n  count: 2\n"
        "  islands: [{device_type: V100, count: 1, shared: true, fabric: {bandwidth_bytes_per_s: 1}}]\n"
        "  nic: {bandwidth_bytes_per_s: 2, latency_s: 0.5, source: data sheet}\n"
        "  bridge: {bandwidth_bytes_per_s: 3}\n"
        "network: {bandwidth_bytes_per_s: 4}\n"
        "overrides: [{servers: [s, s], bandwidth_bytes_per_s: 5}]\n"
    )
    cluster = read(TYPES + server)
    assert cluster.servers[0].islands[0].fabric == Link(bandwidth_bytes_per_s=1)
    assert cluster.servers[0].nic == Link(bandwidth_bytes_per_s=2, latency_s=0.5, source="data sheet")
    assert cluster.servers[0].bridge == Link(bandwidth_bytes_per_s=3)
    assert cluster.network == Link(bandwidth_bytes_per_s=4)
    assert cluster.network_between(0, 0) == Link(bandwidth_bytes_per_s=5)


def test_tables_are_read():
    """All-reduces in order of the number of devices; keys of JSON and YAML are text."""
    server = (
        "servers:\n- name: s\n  islands:\n"
        "  - device_type: V100\n    count: 4\n"
        "    fabric: {bandwidth_bytes_per_s: 1, table: [[1e3, 1e-5], [1e6, 1e-4]]}\n"
        "    all_reduce: {4: [[1, 2], [2, 3]], 2: [[0, 0.5], [8, 0.5]]}\n"
        "network: {bandwidth_bytes_per_s: unlimited, table: [[4, 0.25]]}\n"
    )
    cluster = read(TYPES + server)
    island = cluster.servers[0].islands[0]
    assert island.fabric == Link(bandwidth_bytes_per_s=1, table=((1e3, 1e-5), (1e6, 1e-4)))
    assert [(each.num_devices, each.table) for each in island.all_reduce] == [
        (2, ((0.0, 0.5), (8.0, 0.5))),
        (4, ((1.0, 2.0), (2.0, 3.0))),
    ]
    assert cluster.network == Link(bandwidth_bytes_per_s=math.inf, table=((4.0, 0.25),))


def test_every_fault_of_a_table_is_reported_at_once(complaints_of):
    text = (
        "servers:\n- name: s\n  nic: {bandwidth_bytes_per_s: 1, table: [[1, 1]]}\n"
        "  bridge: {bandwidth_bytes_per_s: 1, table: []}\n"
        "  islands:\n  - device_type: V100\n    count: 4\n"
        "    fabric:\n      bandwidth_bytes_per_s: 1\n      table:\n"
        "      - [1, 2]\n      - [1, 3]\n      - [2, 2.5]\n      - [3]\n      - [4, -1]\n      - [5, 1us]\n"
        "    all_reduce:\n      1: [[1, 1], [2, 2]]\n      3: [[1, 1]]\n      4: [[1, 2], [2, 1]]\n"
        "network: {bandwidth_bytes_per_s: 1, table: 5}\n"
        "overrides: [{servers: [s, s], bandwidth_bytes_per_s: 1, table: [[1, 1], [1, 2]]}]\n"
    )
    amount = "must be a number from 0 to 1e+30"
    island = "servers[0].islands[0]"
    assert complaints_of(cluster_of, TYPES + text) == [
        "7: servers[0].nic.table: unknown key, accepted: bandwidth_bytes_per_s, latency_s, source",
        "8: servers[0].bridge.table: must be a non-empty list, got an empty list",
        f"16: {island}.fabric.table[1]: bytes must increase, got 1 after 1",
        f"17: {island}.fabric.table[2]: seconds must not decrease, got 2.5 after 3",
        f"18: {island}.fabric.table[3]: must be a list of 2, got a list of 1",
        f"19: {island}.fabric.table[4][1]: {amount}, got -1",
        f"20: {island}.fabric.table[5][1]: {amount}, got '1us'",
        f"22: {island}.all_reduce.1: the key must be a number of devices from 2 to 99999, got '1'",
        f"23: {island}.all_reduce.3: must be a list of 2 or more, got a list of 1",
        f"24: {island}.all_reduce.4[1]: seconds must not decrease, got 1 after 2",
        "25: network.table: must be a non-empty list, got 5",
        "26: overrides[0].table[1]: bytes must increase, got 1 after 1",
    ]


def test_peaks_are_sorted_by_precision():
    text = "schema: 1\nname: c\ndevice_types:\n- {name: T, memory_bytes: 1, peak_flops_per_s: {fp32: 1, bf16: 2}}\n"
    cluster = read(text + "servers: [{name: s, islands: [{device_type: T, count: 1}]}]\n")
    assert cluster.device_types[0].peak_flops_per_s == ((Precision.BF16, 2.0), (Precision.FP32, 1.0))


def test_every_fault_of_a_file_is_reported_at_once(complaints_of):
    text = (
        "schema: 1\n"
        "name: c\n"
        "device_types:\n"
        "- {name: V100, memory_bytes: 16GB, peak_flops_per_s: {fp61: 1, fp16: 0}}\n"
        "- {name: V100, memory_bytes: 1, efficiency: 1.5}\n"
        "servers:\n"
        "- {name: s, islands: [{device_type: V10, count: 0}, {device_type: V100, count: 1, shared: yes}]}\n"
        "- {name: s, islands: []}\n"
        "network: {latency_s: -1}\n"
        "overrides:\n"
        "- {servers: [s, t], bandwidth_bytes_per_s: fast}\n"
        "- {servers: [s], bandwidth_bytes_per_s: 1}\n"
    )
    positive = "must be a number from 1e-30 to 1e+30"
    assert complaints_of(cluster_of, text) == [
        "4: device_types[0].peak_flops_per_s.fp61: the key must be 'fp32' or 'fp16' or 'bf16', got 'fp61'",
        f"4: device_types[0].peak_flops_per_s.fp16: {positive}, got 0",
        f"4: device_types[0].memory_bytes: {positive} or 'unlimited', got '16GB'",
        "5: device_types[1].efficiency: must be a number from 1e-30 to 1, got 1.5",
        "5: device_types[1].name: device type name 'V100' appears twice, first on line 4",
        "7: servers[0].islands[0].count: must be a whole number from 1 to 100000, got 0",
        "7: servers[0].islands[1].shared: must be true or false, got 'yes'",
        "7: servers[0].islands[0].device_type: 'V10' is not one of this cluster's device types, did you mean 'V100'?",
        "8: servers[1].islands: must be a non-empty list, got an empty list",
        "8: servers[1].name: server name 's' appears twice, first on line 7",
        "9: network.latency_s: must be a number from 0 to 1e+30, got -1",
        f"9: network.bandwidth_bytes_per_s: is missing, {positive} or 'unlimited'",
        f"11: overrides[0].bandwidth_bytes_per_s: {positive} or 'unlimited', got 'fast'",
        "11: overrides[0].servers[1]: 't' is not one of this cluster's servers, known: s, s",
        "12: overrides[1].servers: must be a list of 2, got a list of 1",
    ]


def test_pair_of_servers_is_overridden_once(complaints_of):
    servers = "".join(f"- {{name: {name}, islands: [{{device_type: V100, count: 1}}]}}\n" for name in "ab")
    pairs = "".join(f"- {{servers: {pair}, bandwidth_bytes_per_s: 1}}\n" for pair in ("[a, b]", "[b, a]"))
    text = TYPES + "servers:\n" + servers + "overrides:\n" + pairs
    assert complaints_of(cluster_of, text) == ["10: overrides[1]: repeats the pair of servers on line 9"]


def test_more_devices_than_can_be_planned_for_are_refused(complaints_of):
    """10,000 hosts of 100 devices: a million."""
    text = TYPES + "servers:\n- {name: s, count: 10000, islands: [{device_type: V100, count: 100}]}\n"
    rule = "must have at most 100000 devices in total, got 1000000"
    assert complaints_of(cluster_of, text) == [f"5: servers: {rule}"]


def test_names_of_hosts_that_collide_are_refused(complaints_of):
    """Two hosts of class `a` are called a-0 and a-1."""
    servers = "".join(
        f"- {{name: {name}, count: {count}, islands: [{{device_type: V100, count: 1}}]}}\n"
        for name, count in (("a", 2), ("a-1", 1))
    )
    assert "a-1" in complaints_of(cluster_of, TYPES + "servers:\n" + servers)[0]
