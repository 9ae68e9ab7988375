"""Configurations of runs, asked for in one call."""

from mdmt.experiments.resolve import resolve
from mdmt.runs.request import RunRequest


def config_for(benchmark, method="mdmt-r", *, settings=None, cross_validation=False, **options):
    """The configuration of a run; `settings` are given as --set gives them."""
    request = RunRequest(benchmark, method, **options).with_settings(settings or {})
    return resolve(request, cross_validation=cross_validation)
