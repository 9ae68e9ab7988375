"""Files, saved state, processes, and code of users. Nothing here loads torch."""
