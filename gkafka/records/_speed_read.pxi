# Reading record batches: see _speed.pyx.
