"""HTML and SVG as a tree of elements: text is text, whatever it holds.

A tree is written out for a file, or handed to a page as JSON, which builds the same elements of it
without reading any of it as HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

# These have no end tag in HTML.
_VOID = frozenset({"meta", "link", "br", "hr", "input"})
# Inside these, text is written as it is; nobody's words are ever put there.
_RAW = frozenset({"script", "style"})


@dataclass(frozen=True)
class Element:
    """A tag, its attributes and what is inside it."""

    tag: str
    attributes: dict[str, str]
    children: tuple[Element | str, ...]

    def html(self) -> str:
        """
        >>> element("p", "1 < 2", element("b", "<script>"), title='a "b"').html()
        '<p title="a &quot;b&quot;">1 &lt; 2<b>&lt;script&gt;</b></p>'
        """
        return "".join(self._pieces())

    def _pieces(self) -> Iterator[str]:
        told = "".join(f' {name}="{escape(value)}"' for name, value in self.attributes.items())
        yield f"<{self.tag}{told}>"
        if self.tag in _VOID:
            return
        for child in self.children:
            if isinstance(child, Element):
                yield from child._pieces()
            elif self.tag in _RAW:
                if "</" in child:
                    raise ValueError(f"an end tag inside <{self.tag}>")
                yield child
            else:
                yield escape(child, quote=False)
        yield f"</{self.tag}>"

    def record(self) -> list[Any]:
        """For JSON: [tag, attributes, children].

        >>> element("p", "a", id="b").record()
        ['p', {'id': 'b'}, ['a']]
        """
        inside = [c.record() if isinstance(c, Element) else c for c in self.children]
        return [self.tag, self.attributes, inside]


def element(tag: str, *children: Element | str | None, **attributes: object) -> Element:
    """An element; None among children or attributes is left out.

    Names of attributes are written without a trailing underscore and with dashes:

    >>> element("a", "x", class_="b", aria_label="c").html()
    '<a class="b" aria-label="c">x</a>'
    """
    named = {
        name.rstrip("_").replace("_", "-"): _spelled(value)
        for name, value in attributes.items()
        if value is not None
    }
    return Element(tag, named, tuple(c for c in children if c is not None))


def _spelled(value: object) -> str:
    # Hundredths of a pixel are more than a screen shows.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
