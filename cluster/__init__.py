"""The nodes of a cluster, the links between them, and the three runtimes that run them.

Reading order:
- `host`: the Host, which is all that a node may use (clock, randomness, timers, connections,
  storage, trace), and its connections;
- `links`: the effects of faults on messages;
- the nodes: `controller`, `broker`, `client`, `zookeeper` (the ensemble that Kafka's old consumer
  uses);
- the description of a cluster: `spec`, `machines` (nodes that share a machine), `node_factory`;
- `runtime`: the interface of an experiment to its cluster; `lives`: legal changes of a node's
  state (start, kill, pause, ...);
- the runtimes: `virtual` (one process, simulated time), `local` (one process, real time), `ray`
  (many processes, real time); `realtime` has the common part of the last two, `wire` the
  listeners for Kafka clients there;
- for all of them: `storage` (a broker's disk as files), `trace` (files of trace rows), `metrics`,
  `fan_out` (distributes work to workers), `worker_processes` (workers on this machine),
  `disk_errors` (errors of the file system), `checkout` (location of the packages), `compiled`
  (imports of compiled modules).
"""
