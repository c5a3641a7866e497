"""The memory as one object to plug into an agent, and what serves it to other processes."""
