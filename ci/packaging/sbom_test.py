#!/usr/bin/python3
"""What ci/packaging/sbom makes of a built program, and what it refuses.

usage: python3 sbom_test.py BUILD_FOLDER [unittest arguments]
"""

import copy
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent / "sbom"
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("sbom", str(PROGRAM))
sbom = importlib.util.module_from_spec(importlib.util.spec_from_loader("sbom", loader))
loader.exec_module(sbom)

build = None


def made(folder, name):
    path = pathlib.Path(folder) / name
    subprocess.run([PROGRAM, "--build", build, "--version", "1.2.3", "--out", path, "skidproof"], check=True,
                   env=dict(os.environ, SOURCE_DATE_EPOCH="86400"))
    return path.read_text(encoding="utf-8")


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.texts = [made(folder, name) for name in ("first", "second")]
        cls.document = json.loads(cls.texts[0])

    def packages(self, relation):
        named = {package["SPDXID"]: package for package in self.document["packages"]}
        return {named[one["relatedSpdxElement"]]["name"]: named[one["relatedSpdxElement"]]
                for one in self.document["relationships"] if one["relationshipType"] == relation}

    def test_is_of_the_right_shape_and_the_same_each_time(self):
        self.assertEqual(sbom.complaints(self.document), [])
        self.assertEqual(self.texts[0], self.texts[1])
        self.assertEqual(self.document["creationInfo"]["created"], "1970-01-02T00:00:00Z")

    def test_names_what_is_compiled_in_and_what_is_loaded(self):
        inside = self.packages("STATIC_LINK")
        for name, licence in (("libcli11-dev", "BSD-3-Clause"), ("libasmjit-dev", "Zlib"), ("libexpected-dev", "CC0-1.0"),
                              ("libgmock-dev", "BSD-3-Clause")):
            self.assertEqual(inside[name]["licenseDeclared"], licence)
        self.assertNotIn("pybind11-dev", inside)  # of the module beside it
        loaded = self.packages("DYNAMIC_LINK")
        has = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libzydis4.0"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(loaded["libzydis4.0"]["versionInfo"], has)
        self.assertIn("libc6", loaded)
        # What the loader says is said.
        needed = set(sbom.owned(sbom.loaded_by(os.path.join(build, "skidproof"))))
        self.assertEqual(set(loaded), needed)

    def test_refuses_what_is_no_document(self):
        def broken(change):
            document = copy.deepcopy(self.document)
            change(document)
            return " ".join(sbom.complaints(document))
        self.assertIn("no documentNamespace", broken(lambda d: d.pop("documentNamespace")))
        self.assertIn("no SPDX 2.3", broken(lambda d: d.update(spdxVersion="SPDX-2.2")))
        self.assertIn("no versionInfo", broken(lambda d: d["packages"][2].pop("versionInfo")))
        self.assertIn("twice", broken(lambda d: d["packages"].append(d["packages"][1])))
        self.assertIn("is nowhere", broken(lambda d: d["relationships"][1].update(relatedSpdxElement="SPDXRef-Package-none")))
        self.assertIn("nothing is linked", broken(lambda d: d.update(relationships=d["relationships"][:2])))
        self.assertIn("not defined", broken(lambda d: d["packages"][0].update(licenseDeclared="LicenseRef-nobody-knows")))
        self.assertIn("no purl", broken(lambda d: d["packages"][-1]["externalRefs"][0].update(referenceLocator="pkg:npm/x@1")))

    def test_both_of_two_licences_and_either_of_them(self):
        expression, _, where = sbom.licence_of("libzstd1")
        self.assertIn("(BSD-3-Clause OR GPL-2.0-only)", expression)
        self.assertEqual(where, "/usr/share/doc/libzstd1/copyright")
        self.assertEqual(sbom.licence_of("libc6")[0], "NOASSERTION")  # its file is prose
        self.assertEqual(sbom.licence_of("no-such-package")[0], "NOASSERTION")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
