"""Classes of Google's library for messages, made of .proto texts by protoc."""

from __future__ import annotations

import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc


@cache
def message_class(text: str, name: str) -> Any:
    """Return the class that Google's library makes of a .proto text compiled by protoc."""
    pool = descriptor_pool.DescriptorPool()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "own.proto").write_text(text)
        out = Path(folder) / "set"
        included = resources.files("grpc_tools") / "_proto"
        options = [
            f"-I{folder}",
            f"-I{included}",
            "--include_imports",
            f"--descriptor_set_out={out}",
        ]
        assert protoc.main(["protoc", *options, "own.proto"]) == 0
        compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    for file in compiled.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
