"""Shows a plan part by part: as text, JSON, a picture or a page, one file per part."""
