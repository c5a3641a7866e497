"""Readers of public sets of facts, from a file the user has or from a hub; no set is part of this project."""
