// Package kv is what key-value stores of this project have in common: the interface of a client,
// the checks that any store must pass, and the workloads that measure one.
//
// Like every application here it sees verbs and nothing below: the same code runs on a rack in real
// time and in the simulator in virtual time.
package kv
