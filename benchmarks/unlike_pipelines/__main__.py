"""`python -m benchmarks.unlike_pipelines`: see `benchmarks/unlike_pipelines/driver.py`."""

from benchmarks.unlike_pipelines.driver import DRIVER

if __name__ == "__main__":
    DRIVER.main()
