"""`python -m benchmarks.unequal_runs`."""

from benchmarks.unequal_runs.driver import DRIVER

if __name__ == "__main__":
    DRIVER.main()
