"""Protobuf messages: their schemas as .proto texts, their bytes as JSON, their rows."""
