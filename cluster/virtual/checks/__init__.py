"""The checks of a run in virtual time, which look at all of its nodes in one process.

- Between nodes: `replica_checks` has the invariants between leaders, followers and the controller,
  and hands on answers and rows to its parts: `sent_batches`, `created_topics`,
  `coordinator_checks`, `member_checks`, `transaction_checks`, `truncation_checks` and
  `cleaning_checks`.
- Of the controller's answers: `controller_checks`.
- Of rows: `metrics_checks` (metrics, and the cluster's status), `task_checks` (loads and unloads of
  coordinators), `role_checks` (leaders and followers) and `commit_interval_checks` (periodic
  commits of consumers).

A check raises InvariantViolation, which makes the run BROKEN: it shows a bug of this project.
"""
