"""One oracle for reading.

Every way of reading records is held against a pure model of a log with damage.
"""
