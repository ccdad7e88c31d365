"""Plan pipeline-parallel training on the GPU servers at hand, with a proof of how good the plan is."""

__version__ = "0.1.0"
