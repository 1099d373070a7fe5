// Package calibrate measures a cost model in the simulator and compares the results with published
// figures. Throughput and latency of a rack are not in the cost file: they result from queues,
// links, windows and threads together. Each comparison has a tolerance. All experiments run with a
// model that calibration has accepted, so no number is tuned for a single experiment.
package calibrate
