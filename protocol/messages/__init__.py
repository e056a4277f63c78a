"""API messages: one frozen struct for each request and response, grouped by their subject.

Reading order: `group` (join, sync, heartbeat, leave), `consumer_group` (KIP-848), `offset`,
`transaction`, `group_admin`, `discovery`, `log` (produce, fetch), `admin`, `controller`; for
ZooKeeper, `zookeeper` (clients and servers) and `zookeeper_quorum` (between servers).

The encoding of messages for real clients is in `protocol.wire`, not here.
"""
