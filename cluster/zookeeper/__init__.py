"""A ZooKeeper ensemble: its semantics whole, of its consensus only what they rest on.

One `create`, from a client of a follower: the client's handle sends CreateRequest (`client`); the
follower's ServerCore takes it in (`client_requests`) and forwards it (`follower`, SubmitRequest);
the leader checks it against everything proposed so far (`database.prepare`), gives it a zxid, logs
it (`txn_log`) and sends a Proposal to each learner (`leader`); a learner logs it and acknowledges;
a majority commits it. Each server applies commits in order (`database.apply`, `znodes`), at its own
time: its watches fire then (`watches`), and behind them the follower answers its client.

Reading order: `znodes` (the tree), `database` (tree and sessions, and what a write becomes),
`watches`, `sessions` (deadlines at the leader), `txn_log`; `ensemble` and `bootstrap` (what is
known before), `outputs` (what an input asks for), `leader`, `follower`, `client_requests`,
`server` (the role of one server), `invariants`, `traces`, `node` (a server on its Host); then
`client` (one session) and `zk_client` (zkclient: retries, listeners and their event thread).

All but `node`, `client` and `zk_client` are synchronous: time comes as an argument, and what is to
be done goes back as a list of outputs.
"""
