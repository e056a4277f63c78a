"""A broker: replicas of partitions, their group coordinator, and what keeps both up to date.

Data flow: a request comes in at `api` and goes to the metadata cache, the replica manager or the
coordinator; metadata comes from the controller through `metadata_fetcher` and reaches, in this
order, the cache, the replica manager and the coordinator's tasks. Reading order: `identity`,
`metadata_cache`, `controller_channel`, `heartbeats`, `metadata_fetcher`, `delayed_appends`,
`fetch_reader`, `delayed_fetches`, `isr_changes`, `replica_fetcher`, `replica_manager`, `produce`,
`list_offsets`, `appends`, `group_coordination`, `coordinator_tasks`, `preload`, `api`, `node`.
"""
