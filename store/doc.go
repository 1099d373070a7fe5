// Package store is the seam between the stores of this project and everything that works with any
// store: the host daemon, the command line, the workloads of YCSB, the scenarios and `rdmalab top`.
//
// A store describes itself as a Store and registers that in an init function. Package store/all
// imports all stores; its import line is all that a store needs outside of its own folder. A store
// brings a Node, which is its part of the daemon of a host, and Commands, which
// are its part of the command line. Requests between the two are JSON on the control socket of the
// host (Path). Functions that need only a client of package kv are written once, for all stores:
// single operations, scans, the shell, histories that prove linearizability, loads and workloads.
package store
