"""How faults are gathered and worded."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.complaints import MAX_SHOWN, Complaints, format_where, nearest, shorten


def raised(complaints):
    with pytest.raises(BadInputError) as caught:
        complaints.checked(None)
    return list(caught.value.complaints)


def test_faults_come_by_line():
    complaints = Complaints("f")
    complaints.add(9, ("b",), "wrong")
    complaints.add(2, ("a", 0), "wrong")
    assert raised(complaints) == ["f:2: a[0]: wrong", "f:9: b: wrong"]


def test_consequences_of_a_fault_are_passed_over():
    complaints = Complaints("f")
    complaints.add(3, ("a", 0), "first")
    complaints.add(3, ("a", 0), "the same place")
    complaints.add(1, ("a",), "above")
    complaints.add(4, ("a", 0, "x"), "below")
    complaints.add(5, ("a", 1), "beside")
    assert raised(complaints) == ["f:3: a[0]: first", "f:5: a[1]: beside"]


def test_very_many_faults_are_counted():
    complaints = Complaints("f")
    for index in range(MAX_SHOWN + 7):
        complaints.add(index, ("a", index), "wrong")
    assert len(raised(complaints)) == MAX_SHOWN + 1
    assert raised(complaints)[-1] == "f: and 7 more faults"


def test_faults_found_by_the_core_get_the_file():
    def build(_):
        raise BadInputError("one", "two")

    with pytest.raises(BadInputError) as caught:
        Complaints("f").finish("entry", build)
    assert caught.value.complaints == ("f: one", "f: two")


def test_place_is_written_as_people_do():
    assert format_where(("layers", 3, "forward_s", "V100", "1")) == "layers[3].forward_s.V100.1"
    assert format_where(("a b", "\x1b[31m")) == "['a b']['\\x1b[31m']"


def test_long_values_are_cut():
    assert len(shorten("x" * 1000)) == 60


def test_nearest_name_is_suggested_only_where_near():
    assert nearest("param_bytes", ["name", "params_bytes"]) == ", did you mean 'params_bytes'?"
    assert nearest("colour", ["name", "params_bytes"]) == ""
