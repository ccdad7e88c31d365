"""What compiled functions return to the interpreter."""

import ast
from pathlib import Path

import stagecut.planner

SOURCES = sorted(Path(stagecut.planner.__file__).parent.rglob("*.py"))


def decorators(function):
    return {node.id for node in function.decorator_list if isinstance(node, ast.Name)}


def test_named_tuples_of_compiled_functions_stay_among_these():
    """An interruption in the constructor of one would crash the interpreter, which here is that of a caller."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    }
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    returning = {
        function.name
        for function in functions
        if "compiled" in decorators(function) and named & {ast.unparse(node) for node in ast.walk(function.returns)}
    }
    assert returning  # else nothing would be looked at
    for function in functions:
        called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
        assert not called & returning or decorators(function) & {"compiled", "inlined"}, function.name
