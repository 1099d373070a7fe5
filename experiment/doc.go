// Package experiment has the measurements that reproduce figures of papers. Each is written once,
// over the interface Platform. It runs on a rack in virtual time at the pace of a cost model
// (package insim), or on a rack that is up (cli). The hosts run the same code on both
// platforms: the clients of package contention over verbs, and the workloads of package kv over
// stores.
//
// An experiment fills a Report: rows of cells in which the paper's value stands beside the measured
// one. The switch runs the program that also runs on a rack.
//
// A figure whose numbers the model was made from shows them again, and predicts nothing. It says so:
// figure.inputs, a line "input" below its table. Inputs from the papers are
//   - the rates and latencies of NICs and of the middlebox in the cost files, which package calibrate
//     compares with the figures that they are from;
//   - in connectx5.yaml client.get, client.put, metadata.call and metadata.threads, from Figure 11 of
//     SwordBox and its authors' Clover;
//   - the times of entries of a send ring, from Figure 8 of RedN (softrnic/sendring);
//   - rednTrip and rednSockets, chosen so that a latency of RedN's paper is as published, and the
//     times for which a process is away in its Figure 16;
//   - the first congestion window of 15 in Figure 15 of 1RMA.
//
// To add an experiment, write a Body in a file of its own and add one line to All.
package experiment
