"""Experiments: files, faults, targets, the runner, checkers, and the search over schedules.

Reading order: `experiment` (the file and its rules), `targets`, `faults`, `run` (carries out the
plan), `checkers` (judge the trace), `results` (the files of a run), `standing` (a cluster that
stays up until a command ends it), `exploration` (many runs), `conformance` (recordings of real
Kafka played against the cluster).
"""
