"""A broker's listener for Kafka clients: Kafka's wire protocol over TCP, PLAINTEXT.

In this project a node is a broker, a controller or a client of the cluster. A frame is a message
between nodes, and a Host is a node's only access to clock, network and disk. A Kafka client is a
node without a Host: it has a name and connections, and link rules (the effects of faults on frames)
apply to it. This package turns the client's bytes into frames, and the broker's frames into bytes.
It may import `protocol`, hosts and links, but no code of brokers.

Reading order: `codec` (messages by version, from `protocol.wire`'s tables), `headers` (request
headers), `exchange` (one request, and its answer), `connection` (one TCP connection), `limits`
(numbers and idle times of connections), `client_links` (link rules at a client's end), `listener`
(all of these, for one incarnation of a broker).
"""
