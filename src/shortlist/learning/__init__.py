"""Networks, the training loop, checkpoints, the linear classifier and temperature scaling."""
