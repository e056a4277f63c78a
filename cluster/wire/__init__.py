"""A broker's listener for Kafka clients: Kafka's wire protocol over TCP, PLAINTEXT.

With it, real Kafka clients can use a cluster of this project, in the runtimes in real time. Inside
the cluster, nodes exchange frames. This package turns the bytes of a Kafka client into frames from
a node with the client's name, and the broker's frames into bytes. So faults can disturb Kafka
clients like nodes. The package imports `protocol`, hosts and links, but no code of brokers.

Reading order:
1. `codec` has the messages by version, from the tables of `protocol.wire`. `headers` has the
   request headers, `exchange` one request and its answer.
2. `connection` is one TCP connection. `limits` bounds the number and the idle time of connections.
3. `client_links` applies link rules at a client's end.
4. `listener` uses all of these, for one incarnation of a broker.
"""
