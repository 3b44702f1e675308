"""The interactive page: one HTML file with its data, style and script, which makes no requests."""

from cutegen.show.page.document import Opened, page_of_layout, page_of_plan

__all__ = ["Opened", "page_of_layout", "page_of_plan"]
