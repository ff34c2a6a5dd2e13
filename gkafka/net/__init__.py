"""Floor 4: the only place that does I/O."""
