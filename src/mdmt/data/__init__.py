"""The data sets: fetching, reading and checking what others published."""
