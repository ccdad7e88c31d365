"""AutoPipe-H: evenness of the partition, iteration time, and seconds of the search."""

from collections.abc import Callable
from statistics import geometric_mean

from benchmarks.harness.measuring import Answer
from benchmarks.papers.paper import Found, Headline, Paper, range_of, times_table
from benchmarks.problems.registry import BALANCE, BALANCE_OF_BLOCKS
from benchmarks.problems.specs import WHOLE_BLOCKS
from benchmarks.report.pages import markdown, ratio, times, whole_seconds
from stagecut.planner.core.units import format_seconds

OF_BLOCKS = " of blocks"
"""Marks the names of planners that are given whole blocks."""
SOLVERS = (
    *("even", "dapple", "piper", "autopipe", "autopipe-h", "milp"),
    *(f"{solver}{OF_BLOCKS}" for solver in ("even", "dapple", "piper")),
)
PLANNERS = (f"dapple{OF_BLOCKS}", f"piper{OF_BLOCKS}", "dapple", "piper")
RIVALS = (f"even{OF_BLOCKS}", "even", *PLANNERS)


def side_by_side(found: Found) -> Found:
    """One row of answers for each model and number of stages; planners that were given whole blocks are marked."""
    rows: dict[str, dict[str, Answer]] = {}
    for name, answers in found.items():
        parts, blocks, _ = name.partition(f", {WHOLE_BLOCKS}")
        named = {f"{solver}{OF_BLOCKS if blocks else ''}": answer for solver, answer in answers.items()}
        rows.setdefault(parts, {}).update(named)
    return rows


def balance_table(found: Found) -> str:
    """Population standard deviation of the stage times F + B, and the slowest stage over the mean."""
    rows = [[name, *(_balance(answers.get(solver)) for solver in SOLVERS)] for name, answers in found.items()]
    head = [f"`{solver}`" for solver in SOLVERS]
    return markdown(("deviation, max / mean (stages)", *head), rows)


def seconds_table(found: Found) -> str:
    """Seconds of the search."""
    rows = [
        [name, *(whole_seconds(answers[solver].search_s if solver in answers else None) for solver in SOLVERS)]
        for name, answers in found.items()
    ]
    return markdown(("seconds of the search", *(f"`{solver}`" for solver in SOLVERS)), rows)


def speedup(found: Found) -> str:
    """Ratios of the simulated iteration times."""
    return "; ".join(f"`{rival}` over `autopipe`: {range_of(found, rival, 'autopipe')}" for rival in PLANNERS)


def evener(found: Found) -> str:
    """Ratios of the standard deviations of the stage times."""
    return _ratios(found, lambda answer: answer.stage_deviation_s, rivals=RIVALS)


def quicker(found: Found) -> str:
    """Ratios of the seconds of the searches."""
    return _ratios(found, lambda answer: answer.search_s, rivals=PLANNERS)


def _ratios(found: Found, figure: Callable[[Answer], float | None], *, rivals: tuple[str, ...]) -> str:
    """Geometric mean over the instances, of each other planner over `autopipe`."""
    told = []
    for rival in rivals:
        factors = [
            factor
            for answers in found.values()
            if rival in answers and "autopipe" in answers
            if (factor := ratio(figure(answers[rival]), figure(answers["autopipe"])))
        ]
        spread = f" ({times(min(factors))} to {times(max(factors))})" if factors else ""
        told.append(f"`{rival}` over `autopipe`: {times(geometric_mean(factors) if factors else None)}{spread}")
    return "; ".join(told)


def _balance(answer: Answer | None) -> str:
    if answer is None or answer.stage_deviation_s is None:
        return "-"
    return f"{format_seconds(answer.stage_deviation_s)}, {answer.max_over_mean:.3f} ({answer.num_stages})"


PAPER = Paper(
    key="autopipe-h",
    source="AutoPipe-H, IEEE Transactions on Computers 74(4), 2025; AutoPipe, CLUSTER 2022",
    specs=(*BALANCE, *BALANCE_OF_BLOCKS),
    rows=side_by_side,
    headlines=(
        Headline(claim="up to 1.26x faster than DAPPLE and Piper", read_in="abstract", ours=speedup),
        Headline(claim="2.73x to 12.7x more balanced", read_in="abstract", ours=evener),
        Headline(claim="an order of magnitude less search time", read_in="abstract", ours=quicker),
    ),
    tables=(
        balance_table,
        lambda found: times_table(found, solvers=SOLVERS, over="milp"),
        seconds_table,
    ),
    comparable=(
        "Comparable: the models (but that our GPT of 48 blocks has 25 heads, not 16, and `gpt2-1.3b`, of 24 wide "
        "blocks, is added here), sequences of 256 tokens, a batch of 128 samples, straight pipelines on 4, 8 and 16 "
        "GPUs with two micro-batches each. Planners are given the parts of blocks that AutoPipe cuts between, and, "
        "*of blocks*, whole transformer blocks, between which the planners before it cut: that much of its lead is "
        "due to finer layers alone. Not comparable: GPUs and links are of our catalogue, times are simulated; the "
        "abstract does not say how balance is measured (here: standard deviation of the stages' F + B), and the "
        "programmes of the other planners are written anew here, as array code, so their seconds are not those of "
        "the published ones. A plan with fewer stages than GPUs is more even, and may be slower: the head of a "
        "small GPT alone is more than a sixteenth of the work."
    ),
)
