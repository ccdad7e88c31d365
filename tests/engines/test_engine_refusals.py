"""What is refused before an engine sees it, each with the reason."""

import pytest

from stagecut.planner.core.messages.errors import UnsupportedError
from tests.exported_plans import CASES, exported

REFUSED = [(name, framework) for name, case in CASES.items() for framework in case.refused]


@pytest.mark.parametrize(("name", "framework"), REFUSED)
def test_what_an_engine_cannot_run_is_refused_with_the_reason(name, framework):
    with pytest.raises(UnsupportedError) as caught:
        exported(CASES[name], framework)
    assert CASES[name].refused[framework] in "\n".join(caught.value.complaints)


def test_each_model_has_exports_for_every_engine_that_can_have_them():
    """torchtitan has no models whose embedding and head share weights in a pipeline; BERT fits on one stage."""
    for framework in ("megatron", "deepspeed", "torchtitan"):
        models = {case.model for case in CASES.values() if framework not in case.refused}
        assert models >= {"llama3-8b", "mixtral-8x7b", "bert-large"}
        assert ("gpt2-xl" in models) == (framework != "torchtitan")
