"""Step 16 of the way of a reading, in a shard: which trees and which fine-tuned network its learners use."""
