"""`python -m benchmarks.papers`."""

from benchmarks.papers.driver import DRIVER

if __name__ == "__main__":
    DRIVER.main()
