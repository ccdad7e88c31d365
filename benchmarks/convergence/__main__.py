"""`python -m benchmarks.convergence`."""

from benchmarks.convergence.driver import DRIVER

if __name__ == "__main__":
    DRIVER.main()
