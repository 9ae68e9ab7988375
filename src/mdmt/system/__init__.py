"""Files, saved state, processes and a person's own code. Nothing here loads torch."""
