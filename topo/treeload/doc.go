// Package treeload measures, in virtual time and at the pace of a cost model, what locks in remote memory yield and what the
// tree of Sherman gets out of them: lock words in a server's memory, in the memory of its NIC, and behind a switch that
// turns the CAS of their words into WRITEs. What was published stands beside what comes out; nothing is tuned: the model is
// the one that package calibrate has accepted, and what the switch does is done by its real program.
package treeload
