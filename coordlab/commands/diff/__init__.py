"""`diff`: the first event in which two runs part: `command`, `execution`, `view`."""
