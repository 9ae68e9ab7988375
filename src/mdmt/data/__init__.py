"""The data sets: fetching, reading and verifying what others published."""
