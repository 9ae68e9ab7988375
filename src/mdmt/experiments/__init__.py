"""Runs: their presets, their configuration, their folders."""
