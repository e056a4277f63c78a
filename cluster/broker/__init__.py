"""A broker: replicas of partitions, their coordinators, and what keeps both up to date.

Data flow: a request comes in at `api` and goes to the metadata cache, the replica manager or a
coordinator; metadata comes from the controller through `control` and reaches, in this order, the
cache, the replica manager and the coordinators' tasks. Reading order: `control`, `replication`,
`coordination`, `transactions`, `channels` (connections to other nodes, and the broker's own
identity), `api`, `node`.
"""
