"""Steps 7 and 16 of the way of a reading: a replica's model, loaded, followed and exchanged for the champion."""
