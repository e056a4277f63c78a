"""Listener of a broker for Kafka clients: the wire protocol over TCP, PLAINTEXT.

A Kafka client is a node without a Host: it has a name, connections, and the gates of its
links. Here its bytes become the frames that every node sends, and the broker's frames become bytes.
The room knows `protocol`, hosts and links; it must not know brokers.

Reading order: `codec` (messages by version from `protocol.wire`'s tables), `headers` (what precedes
a message), `exchange` (one request: from bytes to an envelope, from an answer to bytes),
`connection` (one TCP connection: frames, and one request at a time), `limits` (counts and idleness
of connections), `client_links` (link rules at a client's end), `listener` (all of it, for one
incarnation of a broker).
"""
