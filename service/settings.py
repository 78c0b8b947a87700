"""Settings: the operator's options of a service. Requests cannot change them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from schemas.limits import JOBS_RUNNING_MAX
from schemas.spec.connections import Connections
from schemas.spec.duration import duration_text
from schemas.spec.watermark import NO_DEFAULTS, TimeDefaults
from service.limits.capacity import Capacity
from service.paths import ServicePaths


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path
    connections: Connections
    host: str = "127.0.0.1"
    port: int = 8080
    address: str | None = None  # for clients, if it is not that of host and port
    postgres_port: int | None = None  # of PostgreSQL's clients; None if it does not listen to them
    postgres_tls: tuple[Path, Path] | None = None  # its certificate and key
    master: str = "local[2]"
    brokers: str | None = None  # as given, for the command line of jobs
    connections_file: Path | None = None
    running_max: int = JOBS_RUNNING_MAX
    time_defaults: TimeDefaults = NO_DEFAULTS  # for jobs that do not say
    jobs_per_driver: int = 1  # that may share a Spark JVM
    capacity: Capacity = field(default_factory=Capacity)
    reader: str = ""  # the name of a service that only reads

    @property
    def paths(self) -> ServicePaths:
        return ServicePaths(self.data.absolute(), self.reader)

    @property
    def kafka_arguments(self) -> list[str]:
        """The Kafka options of commands that the service starts; the file has the secrets."""
        arguments = []
        if self.brokers is not None:
            arguments += ["--brokers", self.brokers]
        if self.connections_file is not None:
            arguments += ["--connections", str(self.connections_file.absolute())]
        return arguments

    @property
    def run_arguments(self) -> list[str]:
        return [*self.kafka_arguments, "--master", self.master]

    @property
    def job_arguments(self) -> list[str]:
        """The options of `retally run`."""
        arguments = self.run_arguments
        idle_after_ms, emit_every_ms = self.time_defaults
        for name, ms in (("--idle-after", idle_after_ms), ("--emit-every", emit_every_ms)):
            if ms is not None:
                arguments += [name, duration_text(ms)]
        if self.jobs_per_driver > 1:
            arguments += ["--jobs-per-driver", str(self.jobs_per_driver)]
        return arguments
