"""A broker: replicas of partitions, coordinators, and the metadata on which these depend.

Requests: `api` passes each to the metadata cache, the replica manager or a coordinator.
Metadata: `control` fetches it from the controller. Changes go to the cache first, then to the
replica manager, then to the tasks of the coordinators.

Reading order: `control`, `replication`, `coordination`, `transactions`, `channels` (connections to
other nodes, and the broker's own identity), `api`, `node`.
"""
