"""Searching fault schedules: seeds become experiments, runs in virtual time, findings.

A drawn schedule is an ordinary `Experiment` with an explicit plan and a seed: what is found can be
replayed, shrunk, read by people and run on Ray as it stands.
"""
