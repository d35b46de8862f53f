# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""README.md for a package index, where relative links lead nowhere.

scikit-build-core asks for it (pyproject.toml, `tool.scikit-build.metadata`).
Where the project's URLs name its `Source`, a relative link becomes one into that
repository at the version's tag; where they don't, the link's text stays, with the
name of the file in the sources. Pictures are left out without a `Source`.
"""

import pathlib
import re
import tomllib

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]\[]*)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^ {0,3}```.*?^ {0,3}```[^\n]*$", re.M | re.S)


def index_page(text, source=None, version=""):
    """The page with links that work where it is shown; code blocks stay as they are."""

    def absolute(link):
        target = link["target"]
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        if source:
            kind = "raw" if link["image"] else "blob"
            address = f"{source.rstrip('/')}/{kind}/v{version}/{target}"
            return f"{link['image']}[{link['text']}]({address})"
        if link["image"]:
            return ""
        if target in link["text"]:
            return link["text"]
        return f"{link['text']} (`{target}`)"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(absolute, text[end : fence.start()]), fence[0]]
        end = fence.end()
    page = "".join(parts) + LINK.sub(absolute, text[end:])
    return re.sub(r"\n{3,}", "\n\n", page)


def dynamic_metadata(field, settings, project):
    """What scikit-build-core calls for `readme`."""
    if field != "readme" or settings:
        raise ValueError(f"expected the field readme without settings, got {field}, {settings}")
    root = pathlib.Path(__file__).resolve().parents[1]
    # From the file: asking `project` for what it lacks is an error there.
    table = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    source = table.get("urls", {}).get("Source")
    version = project["version"] if source else ""
    page = index_page((root / "README.md").read_text(), source, version)
    return {"content-type": "text/markdown", "text": page}
