// Package congestion decides how fast a queue pair may send. A Controller is a congestion control:
// a state machine without clock, goroutine, lock and memory allocation, whose arithmetic is in
// integers, so that the same events give the same rates on a rack and in the simulator. DCQCN is
// the reaction point of DCQCN (Zhu et al., SIGCOMM 2015). Timely (Mittal et al., SIGCOMM 2015) and Swift
// (Kumar et al., SIGCOMM 2020) react to the round-trip time. Fixed has a constant rate.
//
// A Flow joins the Controller of one queue pair with a pacer: it says when the next packet may leave.
// The notification point, which answers marked packets by congestion notification packets (CNPs), is
// package congestion/notify.
//
// Params has the parameters of both points, by the names that Linux' driver mlx5 has in debugfs
// (drivers/infiniband/hw/mlx5/cong.c), and those of Timely and Swift by the names of the papers. Rates are in bits a second of Ethernet frames without preamble
// and gap.
package congestion
