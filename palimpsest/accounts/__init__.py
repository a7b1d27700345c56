"""Who a person is: sign-up, sign-in, bearer keys. Knows nothing of agents or conversations."""
