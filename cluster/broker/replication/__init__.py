"""Replicas of partitions: appending, fetching, staying in sync, cleaning and flushing.

Reading order: `produce` and `delayed_appends`; `quiet_fetches`, `fetch_reader` and
`delayed_fetches`; `list_offsets`, `leader_epochs`; `isr_changes`, `replica_fetcher`;
`log_cleaner`, `log_flusher`, `replica_metrics`; `replica_manager` (which connects all of them).
"""
