// Package insim is the platform of experiments in the simulator: it builds a rack in virtual time
// for each load, at the pace of a cost model, and runs the clients there as coroutines.
package insim
