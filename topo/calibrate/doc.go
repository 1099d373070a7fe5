// Package calibrate measures a cost model in the simulator and compares the results with published
// figures: the throughput and latency of a rack result from queues, links, windows and threads
// together, and are not in the cost file. Each comparison has a tolerance. Experiments run with the
// model that calibration has accepted: nothing is tuned for one experiment.
package calibrate
