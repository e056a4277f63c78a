"""`init`: begin an experiment: `command`, `new_experiment`, `experiment_template`."""
