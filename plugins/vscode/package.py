"""Packages the extension: a VSIX is a ZIP file with a manifest beside the extension's folder.

`python3 plugins/vscode/package.py FILE.vsix`. What npm has installed beside it goes along.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

HERE = Path(__file__).resolve().parent
TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension="json" ContentType="application/json"/>
  <Default Extension="js" ContentType="application/javascript"/>
  <Default Extension="md" ContentType="text/markdown"/>
  <Default Extension="vsixmanifest" ContentType="text/xml"/>
</Types>
"""


def manifest(package: dict[str, Any]) -> str:
    """The manifest of the extension that package.json describes."""
    identity = " ".join(
        f"{word}={quoteattr(package[key])}"
        for word, key in (("Id", "name"), ("Version", "version"), ("Publisher", "publisher"))
    )
    return f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" {identity}/>
    <DisplayName>{package["displayName"]}</DisplayName>
    <Description xml:space="preserve">{package["description"]}</Description>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={quoteattr(package["engines"]["vscode"])}/>
    </Properties>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def pack(target: Path) -> None:
    """Write the extension to `target`."""
    files = [HERE / name for name in ("package.json", "extension.js", "README.md")]
    files += sorted(path for path in (HERE / "node_modules").rglob("*") if path.is_file())
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("extension.vsixmanifest", manifest(json.loads(files[0].read_text(encoding="utf-8"))))
        for path in files:
            archive.write(path, Path("extension") / path.relative_to(HERE))


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
