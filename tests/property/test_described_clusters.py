"""A cluster described in a line, or any other, is the same after it was written to a file with names."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.models.clusters.catalogue import CATALOGUE
from stagecut.models.clusters.commented import commented_text
from stagecut.models.clusters.description import described, is_described
from stagecut.planner.core.catalogue import LinkUse
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import cluster_of, to_tree
from stagecut.planner.io.files.cluster_text import cluster_text
from tests.property.test_files_round_trip import clusters

TYPES = [kind.name for kind in CATALOGUE.device_types]
FABRICS, INTERFACES = ([link.name for link in CATALOGUE.links if link.use is use] for use in list(LinkUse)[:2])


@st.composite
def host_classes(draw):
    """A class with its parts as drawn: hosts, islands of (devices, type, fabric or None), interface or None."""
    island = st.tuples(st.integers(1, 16), st.sampled_from(TYPES), st.none() | st.sampled_from(FABRICS))
    return (
        draw(st.none() | st.integers(1, 20)),
        draw(st.lists(island, min_size=1, max_size=3)),
        draw(st.none() | st.sampled_from(INTERFACES)),
    )


def text_of(host_class):
    hosts, islands, interface = host_class
    parts = [" ".join(filter(None, (f"{devices} {kind}", fabric))) for devices, kind, fabric in islands]
    parts[-1] += f" {interface}" if interface else ""
    return ("" if hosts is None else f"{hosts}x") + ", ".join(parts)


def read(text):
    return cluster_of(parse_document(text, file="f"), CATALOGUE)


@given(st.lists(host_classes(), min_size=1, max_size=4))
@settings(max_examples=25)
def test_described_cluster_is_read_again_from_its_file(classes):
    text = " + ".join(map(text_of, classes))
    assert is_described(text)
    cluster = described(text)
    assert read(commented_text(cluster, origin=text)) == cluster
    assert read(format_json(to_tree(cluster))) == cluster


@given(st.lists(host_classes(), min_size=1, max_size=4))
@settings(max_examples=25)
def test_described_cluster_is_what_was_said(classes):
    cluster = described(" + ".join(map(text_of, classes)))
    links = {link.name: link.link for link in CATALOGUE.links}
    for server, (hosts, islands, interface) in zip(cluster.servers, classes, strict=True):
        assert server.count == (hosts or 1)
        assert [(island.count, island.device_type) for island in server.islands] == [each[:2] for each in islands]
        for island, (_, _, fabric) in zip(server.islands, islands, strict=True):
            assert fabric is None or island.fabric == links[fabric]
        assert interface is None or server.nic == links[interface]


@given(clusters())
@settings(max_examples=25)
def test_any_cluster_is_read_again_from_yaml_with_names(cluster):
    assert read(cluster_text(cluster, CATALOGUE)) == cluster
