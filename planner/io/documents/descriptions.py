"""Docstrings below the fields of a class; reading its source takes a while, so that only those who describe it do."""

import ast
import inspect
from itertools import pairwise


def field_docstrings(kind: type) -> dict[str, str]:
    """The docstring under each field that a class itself declares."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(field.target): inspect.cleandoc(str(ast.literal_eval(below.value)))
        for field, below in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
    }
