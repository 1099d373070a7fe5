// Package experiment has the measurements that reproduce figures of papers. Each is written once,
// over the interface Platform. It runs on a rack in virtual time at the pace of a cost model
// (package insim), or on a rack that is up (cmd/rdmalab). The hosts run the same code on both
// platforms: the clients of package contention over verbs, and the workloads of package kv over
// stores.
//
// An experiment fills a Report: rows of cells in which the paper's value stands beside the measured
// one. The cost model is not tuned for an experiment: it is one that package calibrate compares
// with published figures, or has such a model as its base. The only exceptions are times that
// processes take in the figures of RedN: rednTrip and rednSockets are chosen so that a latency is as
// published. The switch runs the program that also runs on a rack.
//
// To add an experiment, write a Body in a file of its own and add one line to All.
package experiment
