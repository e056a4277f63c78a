"""Standing clusters: `coordlab up` starts one, and `inject`, `heal` and `down` give it orders.

No module here knows the command line. Reading order:
- `definition`: an experiment from a file, from flags, or from both;
- `ports`: checks that a cluster's listeners can be opened;
- `messages`: requests of commands, and their answers;
- `control`: sockets between a cluster and commands;
- `registry`: running clusters by name;
- `mailbox`: passes requests from the sockets' threads to the run's loop;
- `claim`: a cluster's registration, socket and mailbox together;
- `ordered_faults`: turns orders into faults;
- `guests`: groups with clients from outside;
- `facts`: the answer to a request for the status;
- `run`: the run itself;
- `stand`: plays a run, and writes its directory.
"""
