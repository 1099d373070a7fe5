package remotemem

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// probeEvery is the period at which Expect asks whether a peer still has the connection.
const probeEvery = 50 * time.Millisecond

// Expect waits until ready returns true because peer i has written or sent something. Unlike Until,
// it also ends when the connection to the peer fails, with an *OpError.
//
// If the peer's message was lost for so long that the peer has ended the connection, this side has
// nothing in flight by which its NIC would notice that. So every probeEvery, Expect posts a WRITE of
// no bytes, unless another operation is in flight. The peer's NIC acknowledges it as long as it has
// the connection, also if the peer itself is busy. Otherwise the WRITE fails, and the connection
// with it. R_Key 0 tells a switch that the WRITE must stay on this connection. A peer whose NIC does
// not answer for the whole time of the retries counts as one that has ended the connection.
func (f *Fabric) Expect(i int, deadline clock.Time, ready func() bool) error {
	p := f.peers[i]
	ended := func() bool { return ready() || !f.Connected(i) }
	for {
		next := min(deadline, f.rt.Now().Add(probeEvery))
		err := f.Until(next, ended)
		switch {
		case err == nil && !ready():
			return p.failed()
		case !errors.Is(err, verbs.ErrTimeout) || next == deadline:
			return err
		}
		if p.pending == 0 {
			f.Write(&p.probe, Target{Peer: i}, 0, 0)
			_ = f.Start(&p.probe) // if it fails, the peer is no longer connected, or there is no room for an operation
		}
	}
}

// failed is the error of a connection that has failed.
func (p *peer) failed() error {
	o := p.last
	o.Peer = p.addr.String() // also of a peer to which there never was a connection
	if o.Status == verbs.Success {
		o.Status = verbs.WRFlushErr
	}
	return &o
}
