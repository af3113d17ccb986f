"""Rows become what models see: inputs of the network, regressors, training windows; and rows without faulty sensors."""
