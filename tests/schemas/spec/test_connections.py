"""Connections: their names, their secrets, and the options of each client.

The Java side is checked by Java: Kafka's own parser reads the JAAS line, and Kafka's own TLS
engine loads the PEM texts, if `make setup` has installed the jars.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import pickle
import re
import shutil
import subprocess
import traceback
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from pydantic import SecretStr

from schemas.spec.connections import (
    SPARK_REDACTION,
    Connection,
    Connections,
    Sasl,
    Tls,
    UnknownConnectionError,
    UnusableFileError,
    kafka_python_options,
    librdkafka_options,
    load_connections,
    spark_options,
)
from schemas.spec.file import SpecError

CANARY = "c4nary-in-the-mine"

SCRAM = """\
prod:
  bootstrap: "a.example:9092, b.example:9093"
  security: SASL_SSL
  sasl: {mechanism: SCRAM-SHA-512, username: retally, password: c4nary-in-the-mine}
"""

# Characters that end the quotes, the option or the line, or begin an escape.
AWKWARD = [
    "plain",
    'quote"inside',
    "apostrophe'inside",
    "back\\slash",
    "ends with backslash\\",
    '\\"',
    '"; evil.Module required x="y',
    'p" username="admin',
    "line\nbreak\r\nand\ttab",
    "\x01\x1f7 octal then a digit",
    "// no comment /* nor this */",
    "; = required",
    "${env:HOME} $1 %s",
    "snow ☃ emoji 😀 é",
    " blanks around ",
]


def connections_of(tmp_path: Path, text: str, **environment: str) -> Connections:
    file = tmp_path / "connections.yaml"
    file.write_text(text)
    return load_connections(file, environment=environment)


def problems_of(tmp_path: Path, text: str, **environment: str) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        connections_of(tmp_path, text, **environment)
    return [(problem.path, problem.reason) for problem in caught.value.problems]


def test_default_connection_is_on_this_host() -> None:
    connection = load_connections(environment={}).lookup("default")
    assert connection == Connection("default", ("127.0.0.1:9092",))


def test_default_connection_comes_from_brokers_then_file_then_environment(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("default: {bootstrap: 'file:1'}\n")
    variable = {"RETALLY_BROKERS": "variable:1"}
    named = load_connections(None, "h:1,[::1]:2", variable).lookup("default")
    assert named.bootstrap == ("h:1", "[::1]:2")
    assert load_connections(file, None, variable).lookup("default").bootstrap == ("file:1",)
    assert load_connections(None, None, variable).lookup("default").bootstrap == ("variable:1",)


def test_default_named_by_file_and_brokers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("default: {bootstrap: 'file:1'}\n")
    with pytest.raises(SpecError, match="default: is defined by --brokers as well"):
        load_connections(file, "h:1", {})


@pytest.mark.parametrize(
    "brokers", ["h", "h:0", "h:65536", "h:", ":1", "h:1,", "http://h:1", "u:pw@h:1", "h:1\nx:1"]
)
def test_address_that_is_none_is_refused_without_quoting_it(brokers: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_connections(None, brokers, {})
    assert str(caught.value) == (
        "--brokers: must be HOST:PORT, as localhost:9092 is, or several separated by commas"
    )


def test_unknown_connection_suggests_the_nearest(tmp_path: Path) -> None:
    connections = connections_of(tmp_path, "staging: {bootstrap: 'h:1'}\n")
    with pytest.raises(UnknownConnectionError, match="did you mean 'staging'"):
        connections.lookup("stagin")
    with pytest.raises(UnknownConnectionError, match="--connections"):
        connections.lookup("10.0.0.1:9092")


def test_password_comes_from_value_environment_or_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    for way, password in [
        ("password: from value", "from value"),
        ("password_env: KAFKA_PW", "from environment"),
        ("password_file: secret", "from file"),
    ]:
        text = SCRAM.replace("password: c4nary-in-the-mine", way)
        connection = connections_of(tmp_path, text, KAFKA_PW="from environment").lookup("prod")
        assert connection.sasl is not None
        assert connection.sasl.password.get_secret_value() == password


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("password: c4nary-in-the-mine", "password_env: NOPE", "prod.sasl.password_env", "not set"),
        (
            "password: c4nary-in-the-mine",
            "password_file: nope",
            "prod.sasl.password_file",
            "cannot",
        ),
        (
            "password: c4nary-in-the-mine",
            "password_file: empty",
            "prod.sasl.password_file",
            "empty",
        ),
        (", password: c4nary-in-the-mine", "", "prod.sasl.password_file", "exactly one of"),
        ("password:", "password_env: A, password:", "prod.sasl.password_file", "exactly one of"),
        ("password:", "pasword:", "prod.sasl", "did you mean 'password'"),
        ("SCRAM-SHA-512", "GSSAPI", "prod.sasl.mechanism", "must be one of PLAIN, SCRAM-SHA-256"),
        ("SASL_SSL", "SSL", "prod.sasl", "has no effect with security: SSL"),
        ("  sasl", "  sesl", "prod.sasl", "is required by security: SASL_SSL"),
        ("SASL_SSL", "sasl_ssl", "prod.security", "did you mean"),
        ("bootstrap", "servers", "prod.bootstrap", "is required"),
        ("  sasl:", "  ssl: {ca: nope.pem}\n  sasl:", "prod.ssl.ca", "there is no file"),
        ("  sasl:", "  ssl: {key: empty}\n  sasl:", "prod.ssl.key", "give both or neither"),
        (
            "  sasl:",
            "  ssl: {key_password: x}\n  sasl:",
            "prod.ssl.key_password_file",
            "missing key",
        ),
        ("prod:", "pr od:", '"pr od"', "is not a connection name"),
        ("SASL_SSL", "SASL_PLAINTEXT\n  ssl: {}", "prod.ssl", "has no effect with"),
        ("retally", "''", "prod.sasl.username", "must not be empty"),
        ("password: c4nary-in-the-mine", 'password: "a\\0b"', "prod.sasl.password", "NUL"),
    ],
)
def test_bad_entry_is_named_with_its_path_and_the_reason(
    tmp_path: Path, old: str, new: str, path: str, reason: str
) -> None:
    (tmp_path / "empty").write_text("")
    problems = problems_of(tmp_path, SCRAM.replace(old, new, 1))
    assert any(at == path and reason in why for at, why in problems), problems


def test_every_bad_entry_is_named_at_once(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, "a: {bootstrap: h}\nb: 5\nc: {bootstrap: 'h:1', x: 1}\n")
    assert [path for path, _ in problems] == ["a.bootstrap", "b", "c"]


def test_problem_has_line_and_column(tmp_path: Path) -> None:
    text = SCRAM.replace("password:", "pasword:")
    with pytest.raises(SpecError, match=r"connections\.yaml:4:55: prod\.sasl: unknown key"):
        connections_of(tmp_path, text)


def secret_connection(tmp_path: Path) -> Connection:
    (tmp_path / "c.pem").write_text("x")
    tls = "  ssl: {certificate: c.pem, key: c.pem, key_password: c4nary-in-the-mine-too}\n"
    return connections_of(tmp_path, SCRAM + tls).lookup("prod")


def test_secret_shows_in_no_text_of_a_connection(tmp_path: Path) -> None:
    connection = secret_connection(tmp_path)
    connections = Connections({"prod": connection})
    for text in (repr(connection), str(connection), f"{connections!r}", f"{connection.sasl}"):
        assert CANARY not in text
    assert CANARY not in repr(dataclasses.asdict(connection))
    assert pickle.loads(pickle.dumps(connection)) == connection


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("username: retally", "username: 5"),
        ("SCRAM-SHA-512", "GSSAPI"),
        ("password: ", "pasword: "),
        ("password: ", "password_env: X, password: "),
        ("password: ", "password: !secret "),
        ("password: ", "password: *"),
        ("password: ", "password: %"),
        ("password: ", "password: @"),
        ("password: ", "password: a: "),
        ("password: ", "password: !u!"),
        ("password: ", "password: &a &"),
        ("password: ", "password: |"),
        ("password: c", 'password: "\\x00c'),
        ("{mechanism: SCRAM-SHA-512, username: retally, password: ", ""),
        ("{mechanism: SCRAM-SHA-512, username: retally, password: c", "[c"),
        ("c4nary-in-the-mine}", "{c4nary-in-the-mine: 1, c4nary-in-the-mine: 2}}"),
        ("  security", "\tsecurity"),
        ("a.example", "user:c4nary-in-the-mine@a.example"),
    ],
)
def test_secret_shows_in_no_error(tmp_path: Path, old: str, new: str) -> None:
    text = SCRAM.replace(old, new, 1)
    assert text != SCRAM
    with pytest.raises(SpecError) as caught:
        connections_of(tmp_path, text)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert CANARY not in repr(caught.value)
    link: BaseException | None = caught.value
    while link is not None:  # nor in the chained exceptions, which tools report
        assert CANARY not in f"{link!r} {link.args}"
        link = link.__cause__ or link.__context__


def test_each_client_gets_exactly_its_own_keys(tmp_path: Path) -> None:
    connection = connections_of(tmp_path, SCRAM).lookup("prod")
    assert librdkafka_options(connection) == {
        "bootstrap.servers": "a.example:9092,b.example:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "retally",
        "sasl.password": CANARY,
    }
    assert kafka_python_options(connection) == {
        "bootstrap_servers": ["a.example:9092", "b.example:9093"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "retally",
        "sasl_plain_password": CANARY,
    }
    assert spark_options(connection) == {
        "kafka.bootstrap.servers": "a.example:9092,b.example:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="retally" password="{CANARY}";'
        ),
    }


def test_plaintext_connection_gives_addresses_only() -> None:
    connection = Connection("default", ("h:1",))
    assert spark_options(connection) == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "PLAINTEXT",
    }


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Return a certificate and its key, converted as the error message says."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: no certificate to test with")
    where = tmp_path_factory.mktemp("pems")
    certificate, plain, key = (where / f"{name}.pem" for name in ("certificate", "plain", "key"))
    for arguments in (
        f"req -x509 -newkey rsa:2048 -nodes -subj /CN=retally -keyout {plain} -out {certificate}",
        f"pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {plain} -out {key} -passout pass:{CANARY}",
    ):
        subprocess.run([openssl, *arguments.split()], check=True, capture_output=True)
    return Tls(certificate, certificate, key, SecretStr(CANARY))


def test_librdkafka_and_kafka_python_take_their_options(pems: Tls) -> None:
    sasl = Sasl("SCRAM-SHA-256", "u", SecretStr('p"\\'))
    connection = Connection("x", ("127.0.0.1:1",), "SASL_SSL", sasl, pems)
    # The constructor reads the files, decrypts the key, and refuses unknown options.
    Producer({**librdkafka_options(connection), "log_level": 0})
    assert kafka_python_options(connection).keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()


def test_every_secret_option_of_spark_is_redacted(pems: Tls) -> None:
    sasl = Sasl("PLAIN", "u", SecretStr(CANARY))
    options = spark_options(Connection("x", ("h:1",), "SASL_SSL", sasl, pems))
    secret = {key for key, value in options.items() if CANARY in value or "PRIVATE" in value}
    assert len(secret) == 3
    assert all(re.search(SPARK_REDACTION, key) for key in secret)


def test_key_in_a_form_java_cannot_read_says_how_to_convert_it(tmp_path: Path, pems: Tls) -> None:
    old = tmp_path / "old.pem"
    old.write_text(f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----\n")
    connection = Connection("x", ("h:1",), "SSL", None, Tls(pems.ca, pems.certificate, old))
    with pytest.raises(UnusableFileError, match="openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES") as caught:
        spark_options(connection)
    assert CANARY not in str(caught.value)
    assert pems.key is not None
    modern = tmp_path / "modern.pem"
    subprocess.run(
        f"openssl pkcs8 -topk8 -v2 aes-256-cbc -in {pems.key} -passin pass:{CANARY} "
        f"-out {modern} -passout pass:{CANARY}".split(),
        check=True,
        capture_output=True,
    )
    with pytest.raises(UnusableFileError, match="is encrypted in a way"):
        spark_options(
            Connection("x", ("h:1",), "SSL", None, Tls(pems.ca, pems.certificate, modern))
        )
    with pytest.raises(UnusableFileError, match="contains no PEM certificate"):
        spark_options(Connection("x", ("h:1",), "SSL", None, Tls(old)))
    with pytest.raises(UnusableFileError, match="cannot be read"):
        spark_options(Connection("x", ("h:1",), "SSL", None, Tls(tmp_path / "none")))


JAVA = """
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

public class Reader {
  static String text(String line) {
    return new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
  }
  static String line(Object text) {
    return Base64.getEncoder().encodeToString(((String) text).getBytes(StandardCharsets.UTF_8));
  }
  public static void main(String[] a) throws Exception {
    Scanner in = new Scanner(System.in);
    Map<String, Object> tls = new HashMap<>();
    tls.put("ssl.protocol", "TLSv1.3");
    tls.put("ssl.enabled.protocols", List.of("TLSv1.3"));
    tls.put("ssl.cipher.suites", List.of());
    for (String key : List.of("ssl.truststore.type", "ssl.keystore.type"))
      tls.put(key, text(in.next()));
    for (String key : List.of("ssl.truststore.certificates", "ssl.keystore.certificate.chain",
                              "ssl.keystore.key", "ssl.key.password"))
      tls.put(key, new Password(text(in.next())));
    DefaultSslEngineFactory factory = new DefaultSslEngineFactory();
    factory.configure(tls);
    System.out.println(factory.keystore().size() + " " + factory.truststore().size());
    while (in.hasNext()) {
      var jaas = new Password(text(in.next()));
      var entries = JaasContext.loadClientContext(Map.of("sasl.jaas.config", jaas))
          .configurationEntries();
      var options = entries.get(0).getOptions();
      System.out.println(String.join(" ", String.valueOf(entries.size()),
          entries.get(0).getLoginModuleName(), String.valueOf(options.size()),
          line(options.get("username")), line(options.get("password"))));
    }
  }
}
"""


def test_java_reads_back_every_password_and_the_pem_files(tmp_path: Path, pems: Tls) -> None:
    checkout = Path(__file__).parents[3]
    jars = Path(os.environ.get("RETALLY_JARS") or checkout / ".jars").absolute() / "broker"
    java = shutil.which("java")
    if java is None or not list(jars.glob("kafka-clients-*.jar")):
        pytest.skip(f"needs java and the jars in {jars}: run make setup")

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    tls = spark_options(Connection("x", ("h:1",), "SSL", None, pems))
    lines = [
        encoded(tls[f"kafka.ssl.{key}"])
        for key in (
            "truststore.type",
            "keystore.type",
            "truststore.certificates",
            "keystore.certificate.chain",
            "keystore.key",
            "key.password",
        )
    ]
    for text in AWKWARD:
        sasl = Sasl("PLAIN", text, SecretStr(text[::-1]))
        options = spark_options(Connection("x", ("h:1",), "SASL_SSL", sasl))
        lines.append(encoded(options["kafka.sasl.jaas.config"]))
    program = tmp_path / "Reader.java"
    program.write_text(JAVA)
    ran = subprocess.run(
        [java, "-cp", f"{jars}/*", str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    stores, *entries = ran.stdout.splitlines()
    assert stores == "1 1"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert entries == [f"1 {module} 2 {encoded(text)} {encoded(text[::-1])}" for text in AWKWARD]


def test_options_that_only_librdkafka_has_are_left_out() -> None:
    options = {"bootstrap.servers": "a:1,b:2", "socket.keepalive.enable": "true"}
    assert kafka_python_options(options) == {"bootstrap_servers": ["a:1", "b:2"]}


REGISTRY = """\
registry:
  url: https://registry.example:8081/
  basic: {username: us, password_env: SECRET}
  ssl: {ca: ca.pem}
token: {url: "http://localhost:8081/apis/ccompat/v7", bearer: {token: c4nary-in-the-mine}}
kafka: {bootstrap: "a.example:9092"}
"""


def test_an_entry_with_a_url_is_a_schema_registry(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    (tmp_path / "connections.yaml").write_text(REGISTRY)
    found = load_connections(tmp_path / "connections.yaml", environment={"SECRET": CANARY})
    assert set(found.by_name) == {"kafka", "default"}
    registry, token = found.lookup_registry("registry"), found.lookup_registry("token")
    assert (registry.url, registry.username) == ("https://registry.example:8081", "us")
    assert registry.tls.ca == tmp_path / "ca.pem"
    for each in (registry, token):
        assert each.secret is not None
        assert each.secret.get_secret_value() == CANARY
        assert CANARY not in repr(each)
        assert pickle.loads(pickle.dumps(each)) == each
    assert token.username is None
    assert found.registries_of(["token", None]) == {"token": token}
    with pytest.raises(UnknownConnectionError, match="no schema registry is called 'kafka'"):
        found.lookup_registry("kafka")


@pytest.mark.parametrize(
    ("entry", "path", "reason"),
    [
        ("url: ftp://r", "url", "must be like https://registry:8081"),
        ("url: https://us:c4nary-in-the-mine@r", "url", "without a user"),
        ("url: http://r, ssl: {}", "ssl", "has no effect with http"),
        ("url: http://r, bearer: {}", "bearer.token_file", "exactly one of token"),
        ("url: http://r, bearer: {token: a}, basic: {username: u, password: p}", "bearer", "basic"),
    ],
)
def test_an_invalid_registry_is_named(tmp_path: Path, entry: str, path: str, reason: str) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(f"r: {{{entry}}}\n")
    with pytest.raises(SpecError) as refused:
        load_connections(file, environment={})
    assert [problem.path for problem in refused.value.problems] == [f"r.{path}"]
    assert reason in refused.value.problems[0].reason
    assert CANARY not in str(refused.value)
