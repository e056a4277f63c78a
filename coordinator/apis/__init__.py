"""The APIs of the group coordinator: one module each, checks in Kafka's order, then the change.

Reading order: `join_group`, `sync_group`, `heartbeat`, `leave_group`; `offset_commit`,
`txn_offset_commit`, `offset_fetch`, `offset_delete`; `list_groups`, `describe_groups`,
`delete_groups`.
"""
