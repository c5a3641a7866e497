"""The two carriers of memory: the external store (ledger and index) and the model's own weights."""
