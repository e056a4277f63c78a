"""The tables of ZooKeeper, and `offset_rewinds`, in plain Python: `tables`."""
