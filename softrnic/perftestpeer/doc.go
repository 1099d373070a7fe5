// Package perftestpeer executes the set-up exchanges of other programs, over a TCP connection that
// the caller made, and then their traffic, as client and as server: those of
// ibv_{rc,uc,ud,srq}_pingpong of rdma-core 44, and of the bandwidth and latency tests of perftest
// 4.5. So either end can be the real program.
//
// Both exchanges are text of fixed length. They do not contain sizes and counts: both sides must be
// started with the same. Records have a fixed length, and any other text from the peer ends the run
// with an error.
package perftestpeer

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// DefaultPort is the TCP port that these programs agree on when not told another.
const DefaultPort = 18515

// ErrFormat means that the peer does not follow the protocol.
var ErrFormat = errors.New("the peer does not speak this exchange")

// ErrWrong means that a message had unexpected bytes.
var ErrWrong = errors.New("a message held wrong bytes")

// Queue pair attributes that these programs use, whatever their options.
const (
	timeoutCode = 16 // 268 ms; that of the programs is 14, which a peer on an emulated processor can exceed seven times in a row
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

// farewell is how long a queue pair is kept after the run to answer a peer that did not get the
// last acknowledgement: as long as the peer retries.
const farewell = 600 * time.Millisecond

// Result has the measurements of a run.
type Result struct {
	QPN     uint32        `json:"qpn"`
	PeerQPN uint32        `json:"peerQpn"`
	Elapsed time.Duration `json:"elapsedNs"`
	// Bytes and Iters count the messages of this run: in both directions of a ping-pong, none of a
	// passive server.
	Bytes uint64 `json:"bytes"`
	Iters int    `json:"iterations"`
	// Usec is the time of one iteration: of a round trip for ping-pong and READ, of half a round
	// trip for the latency of SEND or WRITE.
	Usec float64 `json:"usec"`
	// MiBps and Mpps are of bandwidth tests.
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

// statusError returns the error for a failed completion.
func statusError(wc *verbs.WC) error {
	return fmt.Errorf("work request %d: %v", wc.ID, wc.Status)
}
