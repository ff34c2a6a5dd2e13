"""Fuzzing of everything that reads what strangers send. `make fuzz` runs it for long; the tests here play the corpus and some mutants."""
