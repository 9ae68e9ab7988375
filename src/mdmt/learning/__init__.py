"""What happens while a task is learned: order, measuring, checkpoints."""
