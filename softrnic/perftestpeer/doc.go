// Package perftestpeer is the counterpart of other programs, as client or as server: of
// ibv_{rc,uc,ud,srq}_pingpong of rdma-core 44, and of the bandwidth and latency tests of perftest
// 4.5. It makes the exchange by which they set up a connection, over a TCP connection of the
// caller, and then sends and receives their traffic. So either end can be the real program.
//
// In both exchanges, text records of fixed length describe the queue pairs. Neither side learns the
// size and the number of messages before the traffic, so both must be started with the same ones. A
// record of another form ends the run with an error.
package perftestpeer

import (
	"errors"
	"time"
)

// DefaultPort is the TCP port that ibv_*_pingpong and perftest use by default.
const DefaultPort = 18515

// ErrFormat means that the peer does not follow the protocol.
var ErrFormat = errors.New("the peer does not speak this exchange")

// ErrWrong means that a message had unexpected bytes.
var ErrWrong = errors.New("a message held wrong bytes")

// Attributes of queue pairs. The programs use these values, except for the timeout, whatever their
// options are.
const (
	timeoutCode = 16 // 268 ms. The programs use 14 (67 ms), but a peer on an emulated processor can be slower than that seven times in a row
	retries     = 7
	rnrTimer    = 12 // 0.64 ms
	qkey        = 0x11111111
)

// Limits of the parameters of a run.
const (
	MaxSize  = 8 << 20 // bytes of a message
	maxIters = 10_000_000
	maxDepth = 4096
)

// patience is how long a completion may take by default.
const patience = 30 * time.Second

// farewell is how long a queue pair is kept after the run. If the peer did not get the last
// acknowledgement, it sends again for that long, and must be answered.
const farewell = 600 * time.Millisecond

// Result has the measurements of a run.
type Result struct {
	QPN     uint32        `json:"qpn"`
	PeerQPN uint32        `json:"peerQpn"`
	Elapsed time.Duration `json:"elapsedNs"`
	// Iters is the number of messages of the run, of a ping-pong those in one direction. Bytes is the
	// length of the messages together, of a ping-pong in both directions. Both are 0 for a server
	// whose NIC does all the work.
	Bytes uint64 `json:"bytes"`
	Iters int    `json:"iterations"`
	// Usec is the time of one message in microseconds. For ping-pong and the latency of READ and
	// atomics this is a round trip, for the latency of SEND or WRITE half a round trip.
	Usec float64 `json:"usec"`
	// MiBps is Bytes per second in MiB, Mpps is Iters per second in millions.
	MiBps float64 `json:"MiBps,omitempty"`
	Mpps  float64 `json:"Mpps,omitempty"`
}

func (r *Result) rates() {
	if r.Iters > 0 && r.Elapsed > 0 {
		r.Usec = float64(r.Elapsed) / 1e3 / float64(r.Iters)
		r.MiBps = float64(r.Bytes) / (1 << 20) / r.Elapsed.Seconds()
		r.Mpps = float64(r.Iters) / 1e6 / r.Elapsed.Seconds()
	}
}
