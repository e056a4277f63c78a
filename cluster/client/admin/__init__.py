"""An administrator: changes and questions, repeated as Kafka's AdminClient repeats them.

Reading order: `admin_driver` (many keys, each asked where it belongs), `admin_calls`, `admin`
(elections, moves, topics), `partition_offsets`, `group_descriptions`, `group_admin`,
`group_changes`, `offset_reset`, `node`.
"""
