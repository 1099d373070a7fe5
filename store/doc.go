// Package store is the interface between the stores of this project and everything that works with
// any store: the hosts' daemons, the command line, the workloads of YCSB, the scenarios and
// `rdmalab top`.
//
// A store describes itself as a Store and registers that in an init function. Package store/all
// imports all stores. Its import line is all that a store needs outside its own folder. A store has
// a Node, its part of a host's daemon, and Commands, its part of the command line. The two exchange
// requests in JSON over the control socket of the host (Path). Features that need only a client of
// package kv are written once, for all stores: single operations, scans, the shell, histories that
// prove linearizability, loads and workloads.
package store
