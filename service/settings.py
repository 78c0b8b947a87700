"""Settings: what the operator says when the service starts. A request can change none of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from schemas.limits import JOBS_RUNNING_MAX
from schemas.spec.connections import Connections
from service.limits.capacity import Capacity
from service.places import ServicePlaces


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path
    connections: Connections
    host: str = "127.0.0.1"
    port: int = 8080
    master: str = "local[2]"
    brokers: str | None = None  # as given, for the jobs' own command line
    connections_file: Path | None = None
    running_max: int = JOBS_RUNNING_MAX
    capacity: Capacity = field(default_factory=Capacity)

    @property
    def places(self) -> ServicePlaces:
        return ServicePlaces(self.data.absolute())

    @property
    def kafka_arguments(self) -> list[str]:
        """For the commands that the service starts. Secrets are in the file, not in here."""
        arguments = []
        if self.brokers is not None:
            arguments += ["--brokers", self.brokers]
        if self.connections_file is not None:
            arguments += ["--connections", str(self.connections_file.absolute())]
        return arguments

    @property
    def run_arguments(self) -> list[str]:
        return [*self.kafka_arguments, "--master", self.master]
