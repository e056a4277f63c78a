"""The Host of a node, and the connections that it opens and accepts.

Reading order: `host` (the interface), `incoming_request`, `frames`, `connection_purposes`,
`client_connection`, `connections` (the state machine under every runtime), `base_host` (one
incarnation, whatever the runtime: its links, a pause and what waited meanwhile, its end),
`message_trace` (how a message is traced), `keyed_timers`, `randomness` (one stream for each
purpose).
"""
