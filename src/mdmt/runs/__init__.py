"""Runs as data: what was asked, what was measured, and the folders that hold both."""
