"""Gives the package index a README whose links lead to the repository; hatchling calls this when it builds kpp."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def with_full_addresses(text: str, source: str) -> str:
    """Return Markdown whose links to files, and whose pictures, have addresses in the repository `source`."""

    def full(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({source}/{kind}/main/{link[3]})"

    return LINK.sub(full, text)


class ReadmeHook(MetadataHookInterface):
    """Writes the README into the metadata; the address of the repository stands in `[project.urls]` only."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        full = with_full_addresses(text, metadata["urls"]["Source"])
        metadata["readme"] = {"content-type": "text/markdown", "text": full}
