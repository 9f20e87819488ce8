"""Training: the loop, optimizer, schedule, checkpoints, devices and metrics."""
