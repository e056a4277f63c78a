"""Producers: `node` appends numbered records; `transactional_producer` commits offsets."""
