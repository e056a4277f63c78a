"""Experiments: files, plans, faults, targets, the runner, checkers and their verdicts.

Reading order: `experiment` (the file), `plan`, `targets`, `faults`, `injection`, `runner`
(what happens), then `conditions`, `journal`, `manifest`, `run_directory`, `verdict`; `checkers`
(what is judged);
`problems`, `document`, `shape`, `overrides`, `semantics`, `loader` (reading files, with errors).
"""
