// Package export gives the state and the counters of racks to Prometheus: those that the commands
// status, top and counters show. A Collector reads the racks when it is scraped and keeps nothing
// between scrapes but the last reading, which scrapes within a second share. All names begin with
// rdmalab_; every metric of a rack has the label rack. Handler serves a Collector by HTTP.
package export
