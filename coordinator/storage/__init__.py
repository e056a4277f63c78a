"""What the coordinator keeps in `__consumer_offsets`: written, read back, and left to expire.

Reading order: `store` (records of groups), `commit_values` and `offsets` (committed offsets),
`load`, `above_high_watermark` and `held_writes` (what is appended but not committed),
`offset_retention`, `tombstones`.
"""
