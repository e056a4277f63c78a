"""The Host of a node, and the connections that the node opens and accepts.

Reading order:
1. `host` is the interface. `incoming_request` is a request as a server's handler gets it.
2. `frames` are the messages between nodes, `connection_purposes` the uses of connections.
   `client_connection` is the client's end of one connection, `connections` has all connections of a
   host.
3. `base_host` has the part of a Host that is equal in every runtime. It uses `message_trace` (the
   columns of a message in the trace) and `randomness` (one random stream per purpose).
4. `keyed_timers` and `unanswered` are used by nodes. `unanswered` checks that a node has answered
   each request, or still holds the request.
"""
