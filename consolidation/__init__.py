"""The sleep of the memory: choose facts, write them into the weights, prove them, evict, repair the damage."""
