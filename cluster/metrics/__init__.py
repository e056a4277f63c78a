"""Kafka's metrics: `sensors` compute them, `sampler` writes them into the trace."""
