"""Which algorithm ``auto`` takes: by measured tables where they know the shape, else by a model. Nothing is timed."""
