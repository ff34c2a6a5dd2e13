"""What members of groups agree on (kafka.coordinator)."""
