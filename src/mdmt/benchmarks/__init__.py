"""The streams that runs are measured on."""

from mdmt.benchmarks.registry import BENCHMARKS, Benchmark, find, make

__all__ = ["BENCHMARKS", "Benchmark", "find", "make"]
