# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""README.md as a package index shows it (scripts/index_page.py)."""

from __future__ import annotations

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("index_page", ROOT / "scripts/index_page.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

PAGE = """# fa

![stages](docs/stages.svg)

[Variants](docs/variants.md), [`LICENSE`](LICENSE), [above](#fa), [LLVM](https://llvm.org).

```python
rows[i](docs/no-link.md)
```
"""


def test_without_a_source_links_are_text():
    assert (
        module.index_page(PAGE)
        == """# fa

Variants (`docs/variants.md`), `LICENSE`, [above](#fa), [LLVM](https://llvm.org).

```python
rows[i](docs/no-link.md)
```
"""
    )


def test_with_a_source_links_are_absolute():
    page = module.index_page(PAGE, "https://example.org/fa/", "1.2.3")
    assert "![stages](https://example.org/fa/raw/v1.2.3/docs/stages.svg)" in page
    assert "[Variants](https://example.org/fa/blob/v1.2.3/docs/variants.md)" in page
    assert "[above](#fa), [LLVM](https://llvm.org)" in page
    assert "rows[i](docs/no-link.md)" in page
