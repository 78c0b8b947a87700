"""Publish the changelog: the driver's handle, and the process with the producer."""
