"""What learns while it runs: learners with two verbs, a mixture that weighs them, intervals around it."""
