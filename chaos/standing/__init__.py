"""Standing clusters: clusters that run until a user ends them.

`coordlab up` starts such a cluster. Other commands, such as `inject`, `heal`, `status` and `down`,
send requests to the cluster. No module of this folder knows the command line. Reading order:

- `definition`: makes the experiment of a cluster from a file, from flags, or from both;
- `ports`: checks that the listeners of a cluster can be opened;
- `messages`: the requests of commands, and their answers;
- `control`: the sockets between a cluster and commands;
- `registry`: the running clusters, by their names;
- `mailbox`: passes requests from the threads of the sockets to the loop of the run;
- `claim`: puts a cluster's registration, sockets and mailbox together;
- `ordered_faults`: turns the orders of users into faults;
- `guests`: finds the groups with clients from outside;
- `facts`: makes the answer to a request for the status;
- `run`: the run itself;
- `stand`: carries out a run, and writes its directory.
"""
