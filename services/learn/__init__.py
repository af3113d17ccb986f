"""The slow loop, steps 11-16 of the way of a reading: trigger, dataset, training, gate, registry, swap."""
