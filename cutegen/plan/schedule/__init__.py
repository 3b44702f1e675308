"""Rules for the schedule: the order of tiles, clusters, consumer warpgroups, slices of K."""
