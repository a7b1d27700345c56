"""Conversations: kept, streamed and shown."""
