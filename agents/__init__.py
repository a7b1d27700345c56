"""Who answers: channels, agents, token counting and the call to a model. Knows nothing of conversations."""
