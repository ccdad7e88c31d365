"""All drivers, one after another: `python -m benchmarks`, with the options of `benchmarks/harness/driver.py`.

`python -m benchmarks --docs` measures everything and writes the pages; `--docs --from-results` writes the pages from
the results that are there. `gpu`, `dilated`, `dilated_waves`, `real`, `unequal_runs` and `runtime_overhead` run plans,
and are started by themselves; so are `sublots`, `unequal`, `unlike_pipelines` and `convergence`, which have pages of
their own.
"""

import sys

from benchmarks import certificates, quality, scaling, speed
from benchmarks.harness.driver import Driver
from benchmarks.papers import autopipe_h_mapping
from benchmarks.papers import driver as papers

DRIVERS: tuple[Driver, ...] = (
    speed.DRIVER,
    quality.DRIVER,
    papers.DRIVER,
    autopipe_h_mapping.DRIVER,
    certificates.DRIVER,
    scaling.DRIVER,
)


def main(arguments: list[str]) -> int:
    """Run every driver with the same options; the worst of their exit codes."""
    worst = 0
    for driver in DRIVERS:
        try:
            driver.main(arguments)
        except SystemExit as ended:
            if not isinstance(ended.code, int):
                raise
            worst = max(worst, ended.code)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
