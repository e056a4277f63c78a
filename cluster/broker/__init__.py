"""A broker: replicas of partitions, coordinators, and the metadata on which these depend.

`api` passes each request to the metadata cache, the replica manager or a coordinator. `control`
fetches the metadata from the controller. A change of the metadata goes first to the cache, then to
the replica manager, and then to the coordinators.

Reading order: `control`, `replication`, `coordination`, `transactions`, `channels` (connections to
other nodes, and the broker's own identity), `api`, `node`.
"""
