"""Purposes of connections: what a node uses a connection for.

A node opens one connection for each peer and purpose. For example, a consumer has a connection for
the heartbeats to its coordinator, and another connection for its fetches, although one broker may
get the heartbeats and the fetches. A fault of a link can be restricted to connections with certain
purposes.
"""

GENERAL = "client"
COORDINATOR = "coordinator"
BOOTSTRAP = "bootstrap"
BROKER_HEARTBEAT = "heartbeat"
METADATA = "metadata"
ALTER_PARTITION = "alter-partition"
REPLICA_FETCHER = "replica-fetcher"
PRODUCER_IDS = "producer-ids"
FORWARDING = "forwarding"
KAFKA_CLIENT = "kafka-client"
TRANSACTION_VERIFICATION = "transaction-verification"
TRANSACTION_MARKERS = "transaction-markers"
TRANSACTIONAL_PRODUCER = "transactional-producer"
ZOOKEEPER = "zookeeper"
ZOOKEEPER_QUORUM = "zookeeper-quorum"
ZOOKEEPER_ELECTION = "zookeeper-election"
ADMIN = "admin"

PURPOSES: dict[str, str] = {
    GENERAL: "client to broker: Fetch, Produce, ListOffsets, Metadata, FindCoordinator",
    COORDINATOR: "consumer to its group's coordinator: joining, heartbeats, commits, offsets",
    BOOTSTRAP: "client to a bootstrap server: Metadata, FindCoordinator",
    BROKER_HEARTBEAT: "broker to controller: registration and heartbeats",
    METADATA: "broker to controller: Fetch of the metadata log",
    ALTER_PARTITION: "broker to controller: changes of in-sync replicas",
    REPLICA_FETCHER: "broker to broker: Fetch of a follower",
    TRANSACTIONAL_PRODUCER: "member that commits in transactions: to both its coordinators",
    TRANSACTION_VERIFICATION: "broker to transaction coordinator: is this part of a transaction?",
    TRANSACTION_MARKERS: "transaction coordinator to brokers: markers that end transactions",
    PRODUCER_IDS: "broker to controller: blocks of producer ids",
    FORWARDING: "broker to controller: creations and deletions of topics that clients ask for",
    KAFKA_CLIENT: "Kafka client, in Kafka's wire protocol, to broker: every request",
    ZOOKEEPER: "session of a client: reads, writes, watches and pings",
    ZOOKEEPER_QUORUM: "ZooKeeper's follower to its leader: transactions, and what is forwarded",
    ZOOKEEPER_ELECTION: "ZooKeeper's servers among themselves: votes",
}
"""For each purpose, who uses such a connection, and for what. Users who describe faults read this.

ADMIN is left out, because no fault may target the administrator."""
