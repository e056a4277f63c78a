"""The coordinator's state in `__consumer_offsets`: records, committed offsets, loads, deletions.

Reading order: `store` (records of groups), `commit_values` and `offsets` (committed offsets),
`load`, `above_high_watermark` and `held_writes` (answers that wait for the high watermark),
`offset_retention`, `tombstones`.
"""
