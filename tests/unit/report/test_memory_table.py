"""What fills the memory, as a table."""

from types import SimpleNamespace

import pytest

from stagecut.planner.cost.memory_parts import MemoryParts
from stagecut.planner.report.memory_table import memory_tables
from stagecut.planner.report.text_table import print_table

PARTS = MemoryParts(
    weights_bytes=1e6, gradients_bytes=2e6, optimizer_bytes=6e6, activations_bytes=4e6, working_bytes=5e5
)


@pytest.mark.parametrize("narrow", [False, True])
def test_parts_add_up_to_the_memory_beside_the_limit(capsys, narrow):
    """1 + 2 + 6 + 4 + 0.5 MB; the narrow table leaves to the table of stages what that shows as well."""
    stages = [SimpleNamespace(devices=("host/0", "host/1"))]
    print_table(memory_tables(stages, [PARTS], [16e9])[narrow])
    head, _, row = capsys.readouterr().out.splitlines()
    assert ("devices" in head) != narrow
    parts = ["1 MB", "2 MB", "6 MB", "4 MB", "500 kB"]
    shown = ["0", *parts] if narrow else ["0", "host/0-1", *parts, "13.5 MB", "16 GB"]
    assert row.split() == " ".join(shown).split()
