"""What people and controllers can ask to be changed: pure functions of a record, one subject a file.

Each takes a worker and gives the worker as it is to be, or raises `Refusal`. A worker that comes back equal means that
there was nothing to do: nothing is written, and the answer is the same as if there had been.
"""
