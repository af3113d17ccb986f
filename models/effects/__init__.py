"""What a change of setpoints or weather does to a zone's climate: an answer to "what if?"."""
