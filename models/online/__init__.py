"""Online learning: learners with two verbs, a mixture that weighs them, and intervals around it."""
