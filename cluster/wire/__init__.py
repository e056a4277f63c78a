"""A broker's listener for Kafka clients: Kafka's wire protocol over TCP, PLAINTEXT.

In this project a node is a broker, a controller or a client of the cluster. A frame is a message
between nodes, and a Host is a node's only access to clock, network and disk. A Kafka client is a
node without a Host: it has a name and connections, and link rules (the effects of faults on frames)
apply to it. This package turns the client's bytes into frames, and the broker's frames into bytes.
It may import `protocol`, hosts and links, but no code of brokers.

Reading order:
1. `codec` has the messages by version, from the tables of `protocol.wire`. `headers` has the
request
   headers, `exchange` one request and its answer.
2. `connection` is one TCP connection. `limits` bounds the number and the idle time of connections.
3. `client_links` applies link rules at a client's end.
4. `listener` uses all of these, for one incarnation of a broker.
"""
