"""Shows a plan part by part: as text, as JSON, as a picture and on a page, one file a part."""
