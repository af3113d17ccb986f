"""The slow loop, steps 11 to 17 of the way of a reading: trigger, dataset, training, gate, registry, swap, watch."""
