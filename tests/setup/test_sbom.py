"""The bill of materials: valid CycloneDX, with all locked packages and jars."""

from __future__ import annotations

import json
import zipfile
from importlib import resources

import jsonschema_rs
import pytest

from jobs.edge.machine import jars
from jobs.setup import locked
from setup import sbom
from setup.packages import locked_packages


def _validator() -> jsonschema_rs.Validator:
    """Return a validator of the published schema, which a CycloneDX library contains."""
    directory = resources.files("cyclonedx.schema") / "_res"
    schemas = {
        name: json.loads((directory / f"{name}.SNAPSHOT.schema.json").read_text())
        for name in (f"bom-{sbom.SPEC_VERSION}", "spdx", "jsf-0.82")
    }
    whole = schemas.pop(f"bom-{sbom.SPEC_VERSION}")
    # The schema names the other two by files next to its own address.
    beside = whole["$id"].rpartition("/")[0]
    parts = [(f"{beside}/{name}.SNAPSHOT.schema.json", part) for name, part in schemas.items()]
    registry = jsonschema_rs.Registry(parts)
    return jsonschema_rs.validator_for(whole, registry=registry)


@pytest.mark.parametrize("runtime", [False, True])
def test_the_bill_of_materials_is_cyclonedx(runtime: bool) -> None:
    document = sbom.make_document(runtime)
    validator = _validator()
    assert [str(error)[:500] for error in validator.iter_errors(document)] == []
    assert not validator.is_valid({**document, "components": [{"name": "without a type"}]})


def test_the_bill_of_materials_has_every_locked_package_and_jar() -> None:
    components = {each["bom-ref"]: each for each in sbom.make_document()["components"]}
    assert len(components) == len(locked_packages(*locked.SECTIONS)) + len(locked.jars())
    for each in locked_packages(*locked.SECTIONS):
        found = components[f"pkg:pypi/{each.name}@{each.version}"]
        assert [one["content"] for one in found["hashes"]] == list(each.hashes)
    kafka = components["spark:pkg:maven/org.apache.kafka/kafka-clients@3.9.2?type=jar"]
    jar = jars.directory() / "spark" / "kafka-clients-3.9.2.jar"
    assert kafka["hashes"] == [{"alg": "SHA-256", "content": locked.sha256(jar)}]
    assert kafka["scope"] == "required"
    assert components["pkg:pypi/pytest@9.2.0"]["scope"] == "excluded"


def test_licences_are_those_that_are_stated() -> None:
    components = {each["name"]: each for each in sbom.make_document()["components"]}
    assert components["deltalake"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert components["jinja2"]["licenses"] == [{"license": {"name": "BSD License"}}]
    (pool,) = components["commons-pool2"]["licenses"]
    with zipfile.ZipFile(jars.directory() / "spark" / "commons-pool2-2.13.1.jar") as archive:
        assert pool["license"]["name"] in archive.read("META-INF/MANIFEST.MF").decode()


def test_the_same_locks_give_the_same_bill_of_materials_without_tools_for_an_image() -> None:
    image = sbom.make_document(runtime=True)
    assert image == sbom.make_document(runtime=True)
    assert {each["scope"] for each in image["components"]} == {"required", "optional"}
    assert "broker:" not in "".join(each["bom-ref"] for each in image["components"])
