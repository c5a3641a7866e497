"""Facts to label, train and measure on: a real world corpus, an agent's own world, and updates of both."""
