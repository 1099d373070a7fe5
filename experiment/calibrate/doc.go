// Package calibrate measures a cost model in the simulator and compares the results with published
// figures. Throughput and latency of a rack are not in the cost file: they result from queues,
// links, windows and threads together. Each comparison has a tolerance, to which tests hold the
// models connectx5 and connectx5-dpdk. The other built-in models have connectx5 as their base.
package calibrate
