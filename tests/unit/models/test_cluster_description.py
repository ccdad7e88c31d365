"""Clusters described in a line, and the tables of names that descriptions use."""

import pytest

from stagecut.models import build_cluster, cluster_names
from stagecut.models.clusters.commented import commented_text
from stagecut.models.clusters.description import described, is_described
from stagecut.models.clusters.device_types import KNOWN_TYPES, device_type
from stagecut.models.clusters.links import LINKS, link, named_link
from stagecut.planner.core.catalogue import LinkUse
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision

WANTED = (
    *("a100-40", "a100-40-pcie", "a100-80", "a100-80-pcie", "h100-80", "h100-80-pcie", "h200", "h20", "b200"),
    *("gh200-96", "l4", "l40s", "a10", "a30", "a40", "rtx-a6000", "rtx-6000-ada", "rtx-3090", "rtx-4090", "rtx-5090"),
    *("v100-16", "v100-16-pcie", "v100-32", "v100-32-pcie", "t4", "p100", "mi210", "mi250x-gcd", "mi300x"),
)


def complaints_of(text):
    with pytest.raises(BadInputError) as caught:
        described(text)
    return [complaint.removeprefix(f"cluster {text!r}: ") for complaint in caught.value.complaints]


def test_catalogue_has_every_promised_device_type():
    assert set(WANTED) <= {known.kind.name for known in KNOWN_TYPES}


@pytest.mark.parametrize("known", KNOWN_TYPES, ids=lambda known: known.kind.name)
def test_usual_links_are_a_fabric_and_an_interface(known):
    assert named_link(known.fabric).use is LinkUse.FABRIC
    assert named_link(known.interface).use is LinkUse.INTERFACE


@pytest.mark.parametrize("named", LINKS, ids=lambda named: named.name)
def test_every_link_has_a_source_and_says_what_is_assumed(named):
    assert "assumption" in named.link.source
    assert named.link.bandwidth_bytes_per_s > 0


def test_names_of_types_and_links_are_distinct():
    names = [known.kind.name for known in KNOWN_TYPES] + [named.name for named in LINKS]
    assert len(set(names)) == len(names)


def test_interfaces_are_as_fast_as_their_names_say():
    """Gb/s at the end; of QDR's 40, 8b/10b coding leaves 32."""
    for named in LINKS:
        if named.use is LinkUse.INTERFACE and named.name != "ib-qdr40":
            gbit_per_s = int(named.name.lstrip("abcdefghijklmnopqrstuvwxyz-"))
            assert named.link.bandwidth_bytes_per_s == gbit_per_s * 1e9 / 8
    assert link("ib-qdr40").bandwidth_bytes_per_s == 4e9


def test_lanes_of_pci_express_add_up():
    """16, 8 and 4 lanes; each generation twice the one before. Vendors round 15.754 GB/s."""
    for generation in (3, 4, 5):
        for lanes in (16, 8, 4):
            name = f"pcie{generation}x{lanes}"
            if name in {named.name for named in LINKS}:
                exact = 8e9 * 2 ** (generation - 3) * 128 / 130 / 8 * lanes
                assert link(name).bandwidth_bytes_per_s == pytest.approx(exact, rel=1e-3)


def test_description_of_the_page_is_read():
    """2 hosts of 4 RTX 4090, one of 8 A100-80."""
    cluster = described("2x4 rtx-4090 pcie4x16 eth25 + 8 a100-80 nvlink3 ib-hdr200")
    first, second = cluster.servers
    assert cluster.num_devices == 16
    assert (first.name, first.count, second.name, second.count) == ("rtx-4090", 2, "a100-80", 1)
    assert (first.islands[0].fabric, first.islands[0].shared, first.nic) == (link("pcie4x16"), True, link("eth25"))
    assert (second.islands[0].fabric, second.islands[0].shared) == (link("nvlink3"), False)
    assert (second.nic, cluster.network) == (link("ib-hdr200"), link("switch"))
    assert cluster.device_types == (device_type("rtx-4090"), device_type("a100-80"))


def test_links_may_stand_in_any_order():
    assert described("4 t4 eth10 pcie3x8", name="c") == described("4 t4  pcie3x8 eth10", name="c")


def test_links_that_are_left_out_are_usual_ones():
    (server,) = described("2x8 h100-80").servers
    assert (server.islands[0].fabric, server.nic) == (link("nvlink4"), link("ib-ndr400"))


def test_types_in_one_host_share_the_slower_links():
    """Usual are 31.5 and 15.75 GB/s inside, 100 and 25 Gb/s outside."""
    (server,) = described("2x2 a100-40-pcie, 2 t4").servers
    assert [island.device_type for island in server.islands] == ["a100-40-pcie", "t4"]
    assert (server.count, server.bridge, server.nic) == (2, link("pcie3x16"), link("eth25"))
    assert server.name == "a100-40-pcie+t4"


def test_classes_of_the_same_type_are_numbered():
    names = [server.name for server in described("8 t4 + 2x4 t4 eth10 + 4 l4").servers]
    assert names == ["t4.1", "t4.2", "l4"]


def test_name_of_a_long_description_is_cut():
    assert len(described(" + ".join(["4 t4"] * 30)).name) == 100


def test_build_cluster_takes_descriptions():
    assert build_cluster("4 t4") == described("4 t4")
    assert not any(map(is_described, cluster_names()))


def test_every_faulty_class_is_told():
    form = "is not [HOSTSx]DEVICES TYPE [FABRIC] [INTERFACE], such as 2x4 rtx-4090 pcie4x16 eth25"
    assert complaints_of("2x4 + 0 t4 + 4 h100 + 4 t4 nvlnk4") == [
        f"'2x4' {form}",
        f"'0 t4' {form}",
        "unknown device type 'h100': did you mean 'h100-80' or 'h100-80-pcie' or 'h100-94-nvl'?",
        "unknown fabric or interface 'nvlnk4': did you mean 'nvlink4'?",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("4 t4 eth10 eth25", "'4 t4 eth10 eth25': takes one interface, got eth10 and eth25"),
        ("4 t4 pcie3x8 nvlink4", "'4 t4 pcie3x8 nvlink4': takes one fabric, got pcie3x8 and nvlink4"),
        ("1 t4 eth10, 1 l4 eth25", "'1 t4 eth10, 1 l4 eth25': a host has one interface, got eth10 and eth25"),
        ("2x1 t4, 2x1 l4", "'2x1 t4, 2x1 l4': hosts are counted once, in front, as in 2x2 a100-40-pcie, 2 t4"),
        ("999x999 t4", "must have at most 100000 devices in total, got 998001"),
    ],
)
def test_what_a_description_cannot_say_is_told(text, complaint):
    assert complaints_of(text) == [complaint]


def test_comments_say_where_figures_come_from_and_what_to_measure():
    text = commented_text(described("4 rtx-4090 eth10"), origin="here")
    assert text.startswith("# here\n")
    for words in ("plan profile links", "plan profile model", "plan doctor", "NVIDIA Ada GPU", "IEEE 802.3ae"):
        assert words in text
    assert "nvlink" not in text


@pytest.mark.parametrize(
    ("name", "fp32", "bf16", "gib", "gb_per_s"),
    [
        # Sheets give 624, 1,979 and 733 TFLOP/s with sparsity, twice the dense rate; GiB less 1 for the context.
        ("a100-80", 19.5, 624 / 2, 79, 2039),
        ("h200", 67, 1979 / 2, 140, 4800),
        ("l40s", 91.6, 362.05, 47, 864),
        # MI250X: 383 TFLOP/s, 128 GB and 3.2768 TB/s of two dies.
        ("mi250x-gcd", 95.7 / 2, 383 / 2, 63, 3276.8 / 2),
        ("v100-32", 15.7, 15.7, 31, 900),
    ],
)
def test_figures_are_those_of_the_sheets(name, fp32, bf16, gib, gb_per_s):
    kind = device_type(name)
    assert kind.flops_per_s(Precision.FP32) == pytest.approx(fp32 * 1e12)
    assert kind.flops_per_s(Precision.BF16) == pytest.approx(bf16 * 1e12)
    assert kind.memory_bytes == gib * 2**30
    assert kind.memory_bandwidth_bytes_per_s == pytest.approx(gb_per_s * 1e9)
