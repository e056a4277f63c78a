"""`run`: from an experiment to a run directory, a verdict and a closing summary."""
