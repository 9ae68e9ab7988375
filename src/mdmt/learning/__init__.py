"""Learning a task: the order of examples, measurements, checkpoints."""
