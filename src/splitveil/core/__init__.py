"""What every layer stands on: errors, registries, configuration, seeding, run folders. Never imports torch."""
