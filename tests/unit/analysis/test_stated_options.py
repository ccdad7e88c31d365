"""Search options of a plan file are read back as they were written, and wrong ones are named."""

import pytest

from stagecut.planner.analysis.stated_options import option_values, stated_options
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions


def provenance(seed=0, **options):
    return Provenance(versions=(), options=tuple(sorted(options.items())), seed=seed, input_hashes=())


@pytest.mark.parametrize(
    "options",
    [SolveOptions(), SolveOptions(gap=0.0, time_limit_s=None, memory_limit_bytes=1e9, rows=RowChoice.SHARED, seed=7)],
)
def test_written_options_are_read_back(options):
    stated = provenance(options.seed, **option_values(options, solver="milp"))
    assert stated_options(stated) == (options, ())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gapp", 0.1, "there is no option 'gapp'"),
        ("gap", 1.5, "below 1"),
        ("solver", "oracle", "one of milp"),
        ("rows", "some", "one of shared, all"),
        ("threads", True, "a whole number from 1 to 1024"),
        ("time_limit_s", "long", "a number"),
    ],
)
def test_wrong_option_is_named_and_takes_its_default(name, value, words):
    options, (fault,) = stated_options(provenance(**{name: value}))
    assert options == SolveOptions()
    assert fault.startswith("provenance.options")
    assert words in fault


def test_seed_above_the_limit_of_the_command_line_is_wrong():
    options, (fault,) = stated_options(provenance(2**31))
    assert options.seed == 0
    assert "seed" in fault
