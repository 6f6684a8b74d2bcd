"""Training: the loop, gradient composition, schedules, guards, checkpoints."""
