"""Lists what the binary contains, from Cargo's own data: for the licence texts and the SBOM.

The SBOM is generated here rather than with cargo-cyclonedx, which lists what a package could depend on; this one lists
what is linked for the target, and the sources and data that no crate of the binary names.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import uuid

LICENSE_FILE = re.compile(r"^(un)?licen[sc]e|^copying|^notice|^copyright", re.IGNORECASE)

# The binary embeds the guest image, which is compiled from the sources in this crate.
GUEST_CRATE = "rquickjs-sys"

# C libraries inside crates: crate, library, licence, and the file and pattern from which the version is read.
BUNDLED = [
    ("libsqlite3-sys", "sqlite", "blessing", "sqlite3/sqlite3.c", r'#define SQLITE_VERSION\s+"([^"]+)"'),
    ("rquickjs-sys", "quickjs-ng", "MIT", "quickjs/quickjs.h", r"QJS_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)"),
    ("zstd-sys", "zstd", "BSD-3-Clause", "zstd/lib/zstd.h", r"#define ZSTD_VERSION_(?:MAJOR|MINOR|RELEASE)\s+(\d+)"),
]


class Inventory:
    """The packages that are linked into the binary for a target."""

    def __init__(self, root, target):
        self.root = root
        self.target = target
        metadata = json.loads(self.cargo("metadata", "--format-version", "1", "--filter-platform", target))
        packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
        self.version = next(p["version"] for p in metadata["packages"] if p["name"] == "cellmate-cli")
        tree = self.cargo("tree", "--package", "cellmate-cli", "--target", target, "--edges", "normal,no-proc-macro",
                          "--prefix", "none", "--format", "{p}")
        linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
        self.packages = sorted(
            (packages[name, version.removeprefix("v")] for name, version in linked),
            key=lambda package: (package["name"], package["version"]),
        )
        guest = [p for p in self.all_packages() if p["name"] == GUEST_CRATE]
        self.packages += [package for package in guest if package not in self.packages]
        self.nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        lock = (root / "Cargo.lock").read_text()
        found = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = [^\n]+\nchecksum = "([0-9a-f]+)"', lock)
        self.checksums = {(name, version): checksum for name, version, checksum in found}

    def cargo(self, *arguments):
        command = ["cargo", arguments[0], "--locked", *arguments[1:]]
        return subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.PIPE, text=True).stdout

    def all_packages(self):
        """Returns the packages for every target: the guest's sources are a dependency of none."""
        return json.loads(self.cargo("metadata", "--format-version", "1"))["packages"]

    def third_party(self):
        return [package for package in self.packages if package["source"]]

    def license_texts(self):
        """Returns the licences of all third-party packages, each distinct text once."""
        users = {}
        without = []
        for package in self.third_party():
            folder = pathlib.Path(package["manifest_path"]).parent
            texts = {
                file.read_text(errors="replace").replace("\r\n", "\n").strip()
                for file in sorted(folder.rglob("*"))
                if LICENSE_FILE.match(file.name) and file.is_file() and file.suffix in ("", ".md", ".txt")
                or file.is_file() and file.parent.name.lower() == "licenses"
            }
            for text in texts:
                users.setdefault(text, []).append(label(package))
            if not texts:
                without.append(f"{label(package)}: {package['license']}")
        model = self.root / "crates/catalog/data/LICENSE-potion-base-8M"
        users[model.read_text().strip()] = ["potion-base-8M (embedding table)"]
        parts = ["The cellmate binary contains the following third-party software and data, under these licences.\n"]
        for text, names in sorted(users.items(), key=lambda item: (item[1], item[0])):
            parts.append(f"{'=' * 100}\n{', '.join(names)}\n{'-' * 100}\n{text}\n")
        if without:
            lines = "\n".join(f"  {line}" for line in without)
            parts.append(f"{'=' * 100}\nThese packages name their licence but contain no text of it:\n{lines}\n")
        return "\n".join(parts)

    def cyclonedx(self, binary, timestamp):
        """Returns the SBOM in CycloneDX 1.5."""
        digest = hashlib.sha256(binary).hexdigest()
        product = {
            "type": "application",
            "bom-ref": "cellmate",
            "name": "cellmate",
            "version": self.version,
            "licenses": [{"expression": "Apache-2.0 OR MIT"}],
            "purl": f"pkg:generic/cellmate@{self.version}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        included = {package["id"]: reference(package) for package in self.packages}
        components = [self.component(package) for package in self.packages]
        dependencies = {reference(package): self.dependencies(package, included) for package in self.packages}
        for crate, library, license_id, file, pattern in BUNDLED:
            for package in self.packages:
                if package["name"] == crate:
                    version = bundled_version(package, file, pattern)
                    components.append({
                        "type": "library", "bom-ref": f"{library}@{version}", "name": library, "version": version,
                        "licenses": [{"license": {"id": license_id}}], "purl": f"pkg:generic/{library}@{version}",
                    })
                    dependencies[reference(package)].append(f"{library}@{version}")
        table = "potion-base-8M"
        components.append({
            "type": "machine-learning-model", "bom-ref": table, "name": table,
            "licenses": [{"license": {"id": "MIT"}}], "purl": "pkg:huggingface/minishlab/potion-base-8M",
        })
        start = next(reference(package) for package in self.packages if package["name"] == "cellmate-cli")
        guest = [reference(package) for package in self.packages if package["name"] == GUEST_CRATE]
        dependencies = {"cellmate": [start, *guest, table], **dependencies}
        return {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{digest} {timestamp}')}",
            "version": 1,
            "metadata": {
                "timestamp": timestamp,
                "component": product,
                "properties": [{"name": "cellmate:target", "value": self.target}],
            },
            "components": components,
            "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in dependencies.items()],
        }

    def component(self, package):
        component = {
            "type": "library",
            "bom-ref": reference(package),
            "name": package["name"],
            "version": package["version"],
        }
        if package["license"]:
            # Older crates write `/` between licences.
            component["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        checksum = self.checksums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
            component["purl"] = f"pkg:cargo/{package['name']}@{package['version']}"
        return component

    def dependencies(self, package, included):
        found = self.nodes.get(package["id"], {}).get("deps", [])
        normal = (dep["pkg"] for dep in found if any(kind["kind"] is None for kind in dep["dep_kinds"]))
        return [included[dependency] for dependency in normal if dependency in included]


def label(package):
    return f"{package['name']} {package['version']}"


def reference(package):
    return f"{package['name']}@{package['version']}"


def bundled_version(package, file, pattern):
    text = (pathlib.Path(package["manifest_path"]).parent / file).read_text(errors="replace")
    return ".".join(re.findall(pattern, text)[:3])
