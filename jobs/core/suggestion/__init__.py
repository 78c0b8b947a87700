"""Suggestions: a first spec for a topic, from its newest messages."""
