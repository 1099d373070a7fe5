// Package storeload runs a store under a workload in virtual time, at the pace of a cost model: how much of its throughput is
// left when many clients write few keys. What was published of Clover stands beside what comes out; nothing is tuned.
package storeload
