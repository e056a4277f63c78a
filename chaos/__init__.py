"""Experiments: files, plans, faults, targets, the runner, checkers and their verdicts.

Reading order: `experiment` (the file), `plan`, `targets`, `blast_radius`, `faults`, `link_table`,
`injection`, `runner` (what happens), then `conditions`, `journal`, `manifest`, `run_directory`,
`verdict`; `checkers` (what is judged); `problems`, `document`, `shape`, `overrides`, `sense`,
`fault_semantics`, `semantics`, `loader` (reading files, with errors).
"""
