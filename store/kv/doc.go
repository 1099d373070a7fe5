// Package kv has the common parts of this project's key-value stores: the interface of a client,
// the checks that every store must pass, and the workloads that measure a store.
//
// Like every application here it sees verbs and nothing below: the same code runs on a rack in real
// time and in the simulator in virtual time.
package kv
