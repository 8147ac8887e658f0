"""Learning: networks, the one training loop, the linear classifier, the temperature."""
