"""`kafka-tools`: what an operator asks a cluster, and does to it, on a terminal or in a script.

`app.py` is the frame: it names every command and loads one when it is used. `connection.py` has the options that all of them take to reach a
cluster, `output.py` is the way to the terminal. Then a module for each subject.
"""
