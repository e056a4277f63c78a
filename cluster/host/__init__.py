"""The Host of a node, and the connections that the node opens and accepts.

Reading order: `host` (the interface), `incoming_request`, `frames`, `connection_purposes`,
`client_connection`, `connections` (all connections of a host, in any runtime), `base_host` (one
incarnation in any runtime: links, pause, end), `message_trace` (trace columns of a message),
`keyed_timers`, `unanswered` (the invariant that each request gets an answer), `randomness` (one
random stream per purpose).
"""
