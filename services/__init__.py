"""The running system on Ray, in the order of the data: ingest, store, learn, serve."""
