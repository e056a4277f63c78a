"""A ZooKeeper ensemble: all behaviour that clients see, above a simplified consensus.

An example shows how the modules work together. A client, which is connected to a follower, creates
a znode:

1. The client's handle sends a CreateRequest (`client`).
2. The follower's ServerCore accepts it (`client_requests`) and forwards it to the leader as a
   SubmitRequest (`follower`).
3. The leader checks the write against all transactions proposed so far (`database.prepare`), and
   makes a transaction of it. It gives the transaction a zxid, logs it (`txn_log`), and sends a
   Proposal to each learner (`leader`).
4. Each learner logs the transaction and acknowledges it. When a majority has done so, the leader
   commits the transaction.
5. Each server applies the committed transactions in order, at its own time (`database.apply`,
   `znodes`). It first sends the events of the watches that fire (`watches`). Then the follower
   answers its client.

Some words of ZooKeeper: a *learner* is a server that follows the leader, or is about to. A *zxid*
is the number of a transaction; it consists of the leader's epoch, which each new leader increases,
and a counter. A *znode* is a node of ZooKeeper's tree, and a *watch* reports to a client once that
a znode has changed. A *session* is what the servers know of a client; it goes on when a connection
ends, and expires if the client is silent for too long. An *ephemeral* znode is deleted when its
session ends. *zkclient* is a Java library on top of ZooKeeper's own client.

Reading order: `znodes` (the tree), `database` (tree and sessions; checks writes), `watches`,
`sessions` (deadlines at the leader), `txn_log`; `ensemble` (settings of a server), `bootstrap`
(znodes before the run), `outputs` (effects of an input), `leader`, `follower`, `client_requests`,
`server` (election, and one server's role), `invariants`, `traces`, `node` (a server on its Host);
then `client` (one session) and `zk_client` (zkclient: retries, listeners and their event thread).

All modules but `node`, `client` and `zk_client` are synchronous: they get the time as an argument,
and return the effects of an input as a list of outputs.

Ids such as ZK-04 name rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""
