package scenario

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// With 10 % loss in both directions, it happens once in some hundred thousand requests that a
// request, or its answer, is lost eight times in a row. A queue pair that gives up then behaves
// correctly; one that gives up without eight such losses does not. To decide this, the run is
// repeated, event for event, and a witness counts the losses on the links.

// retries is the retry count of all clients of the scenario transport.
const retries = 7

// gaveUp is the error of a client that has reached its retry limit.
type gaveUp struct {
	host      string
	qpn, peer wire.QPN
	err       error
}

func (g *gaveUp) Error() string { return g.err.Error() }
func (g *gaveUp) Unwrap() error { return g.err }

// limit returns a gaveUp with err if err says that the queue pair qpn of a host has reached its
// retry limit. peer is the number of the peer's queue pair. Other errors are returned unchanged.
func limit(err error, host string, qpn, peer wire.QPN) error {
	var ce *perf.CompletionError
	if errors.As(err, &ce) && ce.Status == verbs.RetryExcErr {
		return &gaveUp{host, qpn, peer, err}
	}
	return err
}

// limit returns a gaveUp with err if err says that the queue pair of e has reached its retry limit.
// It returns other errors unchanged. host is the host of the queue pair.
func (e *ends) limit(err error, host string) error {
	attr, qerr := e.qp.Query()
	if qerr != nil {
		return err
	}
	return limit(err, host, attr.QPN, attr.RTR.DestQPN)
}

// witness follows the packets of the connection of a gaveUp over all links. When the requester
// retries, it sends again from the oldest packet that was not acknowledged. Such a retransmission
// is called a round here. Rounds that begin with the same packet are a series, and the requester
// gives up after a series on that packet.
type witness struct {
	*gaveUp
	frame wire.Frame
	last  wire.PSN // PSN of the requester's last request packet
	any   bool
	// row is the PSN of the packet with which all rounds (retransmissions) of the present series
	// begin: the oldest packet that was not acknowledged.
	row wire.PSN
	// own is true if only an answer with the PSN `row` acknowledges that packet. Otherwise an
	// answer with a later PSN acknowledges it, too.
	own    bool
	rounds int
	// Counts of the present series. lost: packets of the connection that links lost or corrupted.
	// arrived: how often the packet with the PSN `row` arrived at the server. replies: answers that
	// the server sent; if own is true, only those to this packet. answered: true if an answer that
	// acknowledges this packet arrived at the requester.
	lost, arrived, replies int
	answered               bool
}

func (w *witness) see(ev *simnet.Event) {
	if wire.ParseFrame(ev.Frame, &w.frame) != nil {
		return
	}
	bth, info := &w.frame.BTH, w.frame.BTH.Opcode.Info()
	forward := bth.DestQP == w.peer && info.Flags&wire.OpRequest != 0
	if !forward && bth.DestQP != w.qpn {
		return
	}
	first := ev.Kind == simnet.Sent || ev.Kind == simnet.LostFault
	intact := ev.Kind == simnet.Delivered && wire.CheckICRC(ev.Frame)
	switch {
	case forward && first && ev.Link() == w.host:
		w.ask(bth.PSN, info.Flags&wire.OpAnswered != 0)
	case forward && intact && ev.Link() == server && bth.PSN == w.row:
		w.arrived++
	case !forward && first && ev.Link() == server && (!w.own || bth.PSN == w.row):
		w.replies++
	case !forward && intact && ev.Link() == w.host && (bth.Opcode != wire.RCAck || w.frame.AETH.Syndrome.IsAck()):
		w.answered = w.answered || bth.PSN == w.row || !w.own && wire.Diff(bth.PSN, w.row) > 0
	}
	switch ev.Kind {
	case simnet.LostFault, simnet.LostQueue, simnet.LostDown, simnet.Corrupted:
		w.lost++
	case simnet.Sent, simnet.Delivered, simnet.Duplicated, simnet.NoLink:
	}
}

// ask records a request packet of the requester. If its PSN is not after that of the packet before,
// the packet begins a round (see witness).
func (w *witness) ask(psn wire.PSN, own bool) {
	if w.any && wire.Diff(psn, w.last) <= 0 {
		if psn != w.row || w.rounds == 0 {
			*w = witness{gaveUp: w.gaveUp, row: psn, own: own}
		}
		w.rounds++
	}
	w.last, w.any = psn, true
}

// verdict reports whether the requester was right to give up: it made as many rounds as its retry
// count, with as many losses and no answer, and the server has answered packets that arrived.
func (w *witness) verdict() (note string, kept bool) {
	if w.rounds < retries || w.lost < retries || w.answered || w.arrived > 0 && w.replies == 0 {
		return "", false
	}
	return fmt.Sprintf("%s gave up as promised: it went back to PSN %#06x of QP %#x %d times, and the links lost that packet or its answers",
		w.host, w.row, w.peer, w.rounds), true
}

// keptPromise repeats the run of a seed in which a client gave up, and reports whether the client
// was right to do so.
func (s Scenario) keptPromise(seed uint64, g *gaveUp, opt Options) (note string, kept bool) {
	w := &witness{gaveUp: g}
	opt.Pcap, opt.Hash, opt.observe = nil, false, w.see
	e := newEnv(s, seed, opt)
	_ = e.guarded(s.run) // the repeated run fails as the first run did
	e.finish()
	return w.verdict()
}
