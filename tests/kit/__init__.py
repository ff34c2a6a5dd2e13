"""What several rooms of the tests use.

- `clock`: the only clock of the tests. It refuses limits that a busy machine passes.
- `limits`: how a test that runs out of time is ended without harm to the next one.
- `forks`: programs, many for the imports of one interpreter.
- `lacking`: tests that are left out because of what this machine has not.
- `profile`: where the minutes of the suite are.
- `refusing`: a broker that refuses some records of a batch, and names them.
"""
