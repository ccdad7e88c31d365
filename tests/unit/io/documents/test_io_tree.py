"""JSON and YAML as a tree with lines, by either of PyYAML's parsers."""

import itertools
import json

import pytest
import yaml

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents import tree
from stagecut.planner.io.documents.tree import MAX_DEPTH, ListLimit, parse_document


@pytest.fixture(params=["compiled", "pure"], autouse=True)
def parser(request, monkeypatch):
    """Every test here runs with both parsers."""
    if request.param == "pure":
        monkeypatch.setattr(tree, "Loader", yaml.SafeLoader)


def plain(text):
    return parse_document(text, file="f").root.plain()


def fault(text):
    with pytest.raises(BadInputError) as caught:
        document = parse_document(text, file="f")
        document.complaints.checked(document)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1E+9", 1e9),
        ("-2.5e-3", -0.0025),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7),
        ("0", 0),
        ("12", 12),
        ("true", True),
        ("null", None),
        ("", None),
        ("yes", "yes"),
        ("off", "off"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("'1e9'", "1e9"),
        ('"true"', "true"),
        ("1e999", float("inf")),
        ("9" * 5000, float("inf")),
        ("-.inf", float("-inf")),
    ],
)
def test_scalar_reads_as_in_yaml_1_2(text, value):
    read = plain(f"a: {text}\n")["a"]
    assert (type(read), read) == (type(value), value)


def test_json_reads_as_itself():
    """Every kind of JSON value, all escapes, tabs and no spaces after colons."""
    value = {
        "a": [1, -2.5, 1e300, True, False, None, {}, []],
        'b\n\t\\"/': {"é": "\u2028 \x85 \x7f \ufeff \uffff \ud7ff \U0001f600\\ud83d"},
    }
    for indent in (None, 2, "\t"):
        for ascii_only in (True, False):
            assert plain(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == value
    assert plain('{"a":1,"b":{"c":[2,"x\\/y"]}}') == {"a": 1, "b": {"c": [2, "x/y"]}}


def test_keys_are_text_in_both_languages():
    assert plain("a: {1: x, true: y, null: z}") == {"a": {"1": "x", "true": "y", "null": "z"}}


def test_lines_are_those_of_the_keys():
    root = parse_document("a: 1\nb:\n  - c: 2\n    d:\n      3\n", file="f").root
    assert [root.at(*steps).line for steps in (("a",), ("b",), ("b", 0), ("b", 0, "c"), ("b", 0, "d"))] == [
        1,
        2,
        3,
        3,
        4,
    ]
    assert root.at("b", 1) is None
    assert root.at("a", "x", 3) is None


def test_repeated_key_names_both_lines():
    assert fault("a: 1\nb: 2\na: 3\n") == "f:3: a: the key appears twice, first on line 1"
    assert fault('{"x": {\n"1": 1,\n"1": 2}}') == "f:3: x.1: the key appears twice, first on line 2"


def test_aliases_are_refused_before_they_can_explode():
    """Nine lists of nine references each: 9^9 values when expanded."""
    names = "abcdefghi"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join(['*' + old] * 9)}]" for old, new in itertools.pairwise(names)]
    message = fault("\n".join(lines))
    assert message.startswith("f:1: a: anchors (&name) and aliases (*name) are not supported; write the value out")


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [x]", "a: !x 1", "a: !!str 1", "!x a: 1"])
def test_tag_is_refused(text):
    assert "tags such as" in fault(text)


@pytest.mark.parametrize("text", ["", "\n\n", "# a comment\n"])
def test_empty_file_is_refused(text):
    assert fault(text) == "f:1: is empty"


@pytest.mark.parametrize(("text", "got"), [("~", "nothing"), ("[1]", "a list of 1"), ("hello", "'hello'"), ("3", "3")])
def test_top_must_be_a_mapping(text, got):
    assert fault(text) == f"f:1: must be a mapping of keys to values, got {got}"


def test_second_document_is_refused():
    assert fault("a: 1\n---\nb: 2\n") == "f:2: expected a single document, but a second one begins here"


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5000, "- " * 5000 + "x", '{"a":' * 5000])
def test_deep_nesting_is_refused_without_recursion(text):
    assert f"nested more than {MAX_DEPTH} levels deep" in fault(text)


def test_too_many_values_are_refused(monkeypatch):
    monkeypatch.setattr(tree, "MAX_VALUES", 100)
    assert "more than 100 values" in fault("a: [" + "1, " * 100 + "1]")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [1, 2\n", 3),
        ("a: 1\n\tb: 2\n", 2),
        ("a: 1\nb: 'x\n", 3),
        ("a: 1\nb: c: d\n", 2),
        ("a: 1\n@: 1\n", 2),
    ],
)
def test_broken_yaml_is_refused_with_its_line(text, line):
    assert fault(text).startswith(f"f:{line}: neither JSON nor YAML: ")


@pytest.mark.parametrize(
    "text", ["a: \x07", 'a: "\\U99999999"', f"%YAML {'9' * 5000}.1\n---\na: 1", "? [a]\n: 1", "<<: *x"]
)
def test_odd_text_is_a_complaint_and_no_crash(text):
    assert fault(text).startswith("f:1: ")


@pytest.mark.parametrize("text_of", [json.dumps, yaml.safe_dump])
def test_the_elements_of_a_list_over_its_limit_are_counted(text_of):
    layers = ["a", {"b": [1, [2]]}, [], {}, [[3, 4], {"c": {}}], 5]
    text = text_of({"others": [1, 2, 3], "layers": layers, "more": {"layers": [1, 2, 3]}})
    limit = ListLimit(key="layers", most=2, rule="at most 2")
    with pytest.raises(BadInputError, match=r"layers: must be at most 2, got 6$"):
        parse_document(text, file="f", limit=limit)


def test_faults_behind_the_limit_of_a_list_are_not_looked_for():
    """A tag is a fault wherever it is read."""
    limit = ListLimit(key="layers", most=1, rule="at most 1")
    with pytest.raises(BadInputError) as caught:
        parse_document("layers: [a, !tag b, [c, d]]", file="f", limit=limit)
    assert caught.value.complaints == ("f:1: layers: must be at most 1, got 3",)


def test_a_list_as_long_as_its_limit_is_read():
    limit = ListLimit(key="layers", most=2, rule="at most 2")
    assert parse_document("layers: [[1, 2], 3]\nothers: [1, 2, 3]", file="f", limit=limit).root.plain() == {
        "layers": [[1, 2], 3],
        "others": [1, 2, 3],
    }
