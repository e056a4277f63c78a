"""Replicas of partitions: appending, fetching, staying in sync, cleaning and flushing.

Reading order:
1. `produce` and `delayed_appends` append the batches of producers.
2. `quiet_fetches`, `fetch_reader` and `delayed_fetches` answer Fetches. `list_offsets` and
   `leader_epochs` answer other questions about logs.
3. `isr_changes` and `replica_fetcher` keep the replicas in sync.
4. `log_cleaner`, `log_flusher` and `replica_metrics` work periodically.
5. `replica_manager` connects all of them.
"""
