"""The rules, a file each: what one key of a spec is settled to, and why."""
