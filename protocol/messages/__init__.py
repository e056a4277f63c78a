"""API messages: one frozen struct for each request and response, grouped by what they serve.

Reading order: `group` (join, sync, heartbeat, leave), `consumer_group` (KIP-848), `offset`,
`transaction`, `group_admin`, `discovery`, `log` (produce, fetch), `admin`, `controller`; of
the other world `zookeeper` (clients) and `zookeeper_quorum` (servers among themselves).

No message knows its bytes: `protocol.wire` does.
"""
