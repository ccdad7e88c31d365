"""Solvers that find good plans fast, without a proof."""
