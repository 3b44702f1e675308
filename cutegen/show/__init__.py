"""What people see of a plan, part by part: as text, as JSON and as a picture, one file a part."""
