"""The router: what a small and a large model reveal about a fact, and whether the fact deserves storing."""
