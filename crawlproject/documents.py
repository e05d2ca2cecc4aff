"""Documents for people, by Jinja: each is one file of HTML, without scripts, that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from crawlproject.texts import visible


class Document:
    """The template `page.html` of a package, with its `style.css`, and functions for it.

    Jinja escapes values, wherever they come from. Characters that are not printable become `?`: some are not
    allowed in HTML, others reverse a text. The template puts in `style`, and `policy` as its
    Content-Security-Policy.
    """

    def __init__(self, package: str, **functions: Any) -> None:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # here: it would slow every command

        style = (resources.files(package) / "style.css").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self.policy = (
            f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
        )
        environment = Environment(
            loader=PackageLoader(package, ""),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: value if hasattr(value, "__html__") else visible(str(value)),
        )
        environment.globals |= {**functions, "policy": self.policy, "style": style}
        self._template = environment.get_template("page.html")

    def render(self, **values: Any) -> bytes:
        """Return the document with these values."""
        return self._template.render(values).encode()
