"""The face: job control and current results over REST."""
