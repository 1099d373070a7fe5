// Package contention measures, in virtual time and at the pace of a cost model, what many clients get out of one 64-bit
// word: as plain CAS, and through a switch that replaces CAS by WRITE. It is fig. 10 of the SwordBox paper with its
// figures beside. Nothing is tuned: the model is the one that package calibrate has accepted, and what the switch does is
// done by its real program.
package contention
