"""The contracts on the wire and in the log: samples, envelopes, events, and what decodes them."""
