"""Thousands of small random choice graphs, on which every exact method must agree with brute force.

python -m benchmarks.choice_graphs.agreement --cases 5000 --seed 1
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.brute_force import try_all
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, solve_program
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.reductions.reduce import reduce
from stagecut.planner.choice_graphs.solving.solve import solve
from stagecut.planner.solvers.search.options import SolveOptions
from tests.choice_graphs import optimum, small_graphs


def main(arguments: Sequence[str]) -> None:
    """Draw graphs and compare; raises at the first that differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    seen: Counter[str] = Counter()
    checks = settings(
        max_examples=chosen.cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @seed(chosen.seed)
    @checks
    @given(small_graphs())
    def agree(graph: ChoiceGraph) -> None:
        least = optimum(graph)
        seen["no legal choice" if least is None else "solved"] += 1
        reduced = reduce(graph)
        best = None if reduced is None else try_all(reduced.graph)
        assert (best is None) == (least is None)
        if reduced is not None and best is not None:
            put_back = evaluate(graph, reduced.put_back(best))
            assert (put_back.cost, put_back.faults) == (least, ())
        proven = solve_program(graph, ProgramLimits())
        assert proven.cost == least
        assert least is None or (proven.bound is not None and proven.bound <= least)
        result = solve(graph, SolveOptions(gap=1e-5))
        assert result.objective == least
        assert least is None or result.bound <= least

    agree()
    print(", ".join(f"{what}: {count}" for what, count in sorted(seen.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
