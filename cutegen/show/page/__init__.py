"""The interactive page: one HTML file that holds its data, its style and its script, and asks nobody for anything."""

from __future__ import annotations

from cutegen.show.page.document import Opened, page_of_layout, page_of_plan

__all__ = ["Opened", "page_of_layout", "page_of_plan"]
