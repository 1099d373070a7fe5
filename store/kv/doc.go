// Package kv has what all key-value stores of this project have in common: the interface of a
// client, the checks that every store must pass, and the workloads that measure a store.
//
// Like every application here, the package uses verbs and nothing below them. The same code runs on
// a rack in real time and in the simulator in virtual time.
package kv
