"""Handlers of the group coordinator's APIs: one module each, with the checks in Kafka's order.

Reading order: `join_group`, `sync_group`, `heartbeat`, `leave_group`; `offset_commit`,
`txn_offset_commit`, `offset_fetch`, `offset_delete`; `list_groups`, `describe_groups`,
`delete_groups`.
"""
