# One image for everything of ours that docker-compose.yml starts: service, jobs, Spark's master and
# workers, the demo's source. The first stage sets up as `make setup` does, without the tools of the
# tests and the embedded broker; the second has what that left and nothing to build with. Java is
# the wheel that the set-up installs where there is none: a third of the distribution's in size.

# The digest is that of the index of all platforms; docs/deploy.md says how to renew it.
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${BASE} AS build

WORKDIR /opt/retally
COPY pyproject.toml ./
COPY setup/ setup/
COPY schemas/ schemas/
COPY jobs/ jobs/
COPY service/ service/
COPY client/ client/
# Nothing can be compiled later, on a file system that is read only; and nothing is installed later.
RUN setup/setup.sh --runtime \
    && .venv/bin/python -m compileall -q schemas jobs service client \
    && .venv/bin/python -m pip uninstall -q -y uv pip setuptools \
    # Of our packages; nothing imports them.
    && find .venv -type d -name tests -prune -exec rm -rf {} +
# Last, so that an edit of a document installs nothing again: the service only reads these files.
COPY docs/ docs/

FROM ${BASE}

# bash is there for spark-class. tini passes signals on and reaps what jobs leave.
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 retally \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /tmp retally \
    # New volumes take owner and mode from here.
    && install -d -o retally -g retally -m 0700 /data /cache

# Root's, so that the process cannot change its own code. The same place as before: a virtual
# environment knows its own.
COPY --from=build --chown=root:root /opt/retally /opt/retally

ENV PATH=/opt/retally/.venv/bin:/usr/local/bin:/usr/bin:/bin \
    # Spark's Python workers find our packages by it, wherever an executor stands.
    PYTHONPATH=/opt/retally \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SPARK_HOME=/opt/retally/.venv/lib/python3.11/site-packages/pyspark \
    # Masters and workers are started by Spark's own scripts, which look for Java here.
    JAVA_HOME=/opt/retally/.java \
    HOME=/tmp \
    # Kernels for a processor other than that of the build are compiled here.
    XDG_CACHE_HOME=/cache

WORKDIR /data
VOLUME ["/data", "/cache"]
EXPOSE 8080
USER 10001:10001
# For the default command; docker-compose.yml says another for each of its services.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "service.probe", "http://127.0.0.1:8080/readyz"]
# Nothing runs yet in a container that starts: its shuffle files are what a crash has left.
ENTRYPOINT ["/usr/bin/tini", "--", "sh", "-c", "rm -rf /cache/spark/*; exec \"$@\"", "sh"]
CMD ["retally", "serve", "--data", "/data", "--host", "0.0.0.0", "--port", "8080"]
