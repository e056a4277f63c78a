"""Experiments: files, faults, targets, the runner, checkers, and the search over schedules.

Reading order: `experiment` (the file and its rules), `targets`, `faults`, `run` (what happens, and
when), `checkers` (what is judged), `results` (what is kept of a run), `standing` (a run that goes
on until it is ended), `exploration` (many runs), `conformance` (recordings of real Kafka played
against the cluster).
"""
