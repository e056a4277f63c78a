"""Experiments: files, plans, faults, targets, the runner, checkers and their verdicts.

Reading order: `experiment` (the file), `loader` (reading it, with its errors), `plan`, `targets`,
`journal`, `run_directory`, `runner`, `checkers`, `verdict`.
"""
