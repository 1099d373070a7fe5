// Package experiment has the measurements that reproduce figures of papers. Each is written once,
// over a Platform: a rack in virtual time at the pace of a cost model (package insim), or the rack
// that is up (topo/cmd/rdmalab). The hosts run the same code on both platforms: the clients of
// package contention over verbs, and the workloads of package kv over stores.
//
// An experiment fills a Report: rows of cells in which the paper's value stands beside the measured
// one. Nothing is tuned for an experiment: the model is the one that package calibrate compares
// with published figures, and the switch runs its real program.
//
// To add an experiment, write a Body in a file of its own and add one line to All.
package experiment
