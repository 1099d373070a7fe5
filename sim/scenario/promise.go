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

// gaveUp is the error of a client that has reached its retry limit. mtu is the path MTU of the
// connection.
type gaveUp struct {
	host      string
	qpn, peer wire.QPN
	mtu       verbs.MTU
	err       error
}

func (g *gaveUp) Error() string { return g.err.Error() }
func (g *gaveUp) Unwrap() error { return g.err }

// limit returns a gaveUp with err if err says that the queue pair qpn of a host has reached its
// retry limit. peer is the number of the peer's queue pair, mtu is the path MTU. Other errors are
// returned unchanged.
func limit(err error, host string, qpn, peer wire.QPN, mtu verbs.MTU) error {
	var ce *perf.CompletionError
	if errors.As(err, &ce) && ce.Status == verbs.RetryExcErr {
		return &gaveUp{host, qpn, peer, mtu, err}
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
	return limit(err, host, attr.QPN, attr.RTR.DestQPN, attr.RTR.PathMTU)
}

// witness follows the packets of the connection of a gaveUp over all links. When the requester
// retries, it sends again from the oldest packet that was not acknowledged. Such a retransmission
// is called a round here. Rounds that begin with the same packet are a series, and the requester
// gives up after a series on that packet.
type witness struct {
	*gaveUp
	frame wire.Frame
	// next is the PSN after the requester's last request packet. A READ request takes as many PSNs
	// as it has response packets.
	next wire.PSN
	any  bool
	// row is the PSN of the packet with which all rounds (retransmissions) of the present series
	// begin: the oldest packet that was not acknowledged.
	row wire.PSN
	// own is true if that packet is a READ or an atomic. Then only its response with the PSN `row`
	// acknowledges it, and not an ACK, even with that PSN. Otherwise an answer with a later PSN
	// acknowledges the packet, too.
	own    bool
	rounds int
	// expected is the PSN of the request packet that the server takes next; it does not take packets
	// with later PSNs.
	expected wire.PSN
	// Counts of the present series. lost: packets of the connection that links lost or corrupted.
	// owed: packets that arrived at the server and that it must answer. replies: answers that the
	// server sent. If own is true, owed and replies are only of the packet with the PSN `row`.
	// answered: true if an answer that acknowledges this packet arrived at the requester.
	lost, owed, replies int
	answered            bool
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
		w.ask(bth.PSN, bth.PSN.Add(w.span()), info.Flags&wire.OpAnswered != 0)
	case forward && intact && ev.Link() == server:
		w.arrive(bth.PSN, bth.AckReq || info.Flags&wire.OpAnswered != 0)
	case !forward && first && ev.Link() == server:
		w.reply(bth.PSN)
	case !forward && intact && ev.Link() == w.host:
		nak := bth.Opcode == wire.RCAck && !w.frame.AETH.Syndrome.IsAck()
		w.answered = w.answered || !nak && (w.own && w.isOwn(bth.PSN) || !w.own && wire.Diff(bth.PSN, w.row) >= 0)
	}
	switch ev.Kind {
	case simnet.LostFault, simnet.LostQueue, simnet.LostDown, simnet.Corrupted:
		w.lost++
	case simnet.Sent, simnet.Delivered, simnet.Duplicated, simnet.NoLink:
	}
}

// span returns how many PSNs the request packet w.frame takes.
func (w *witness) span() int {
	if w.frame.BTH.Opcode != wire.RCReadRequest {
		return 1
	}
	mtu := max(1, int(w.mtu))
	return max(1, (int(w.frame.RETH.Length)+mtu-1)/mtu)
}

// ask records a request packet of the requester, which takes the PSNs from psn to the one before
// next. If the packet before it has taken the PSN psn, too, or a later one, it begins a round (see
// witness). This is also so if the packet before is a READ of which only the last responses are
// missing: then the requester asks for these alone, from a PSN on that is after that of the READ.
func (w *witness) ask(psn, next wire.PSN, own bool) {
	switch {
	case !w.any:
		w.expected = psn
	case wire.Diff(psn, w.next) < 0:
		if psn != w.row || w.rounds == 0 {
			*w = witness{gaveUp: w.gaveUp, row: psn, own: own, expected: w.expected}
		}
		w.rounds++
	}
	w.next, w.any = next, true
}

// arrive records that the request packet w.frame has arrived at the server. The server must answer
// the packet if it asks for that, and if none before it is missing. The first packets of a WRITE,
// for example, do not ask: if only these arrive in all rounds, the server rightly keeps silent.
func (w *witness) arrive(psn wire.PSN, asks bool) {
	ahead := wire.Diff(psn, w.expected)
	if ahead == 0 {
		w.expected = psn.Add(w.span())
	}
	if ahead <= 0 && asks && (!w.own || psn == w.row) {
		w.owed++
	}
}

// reply records the answer w.frame that the server has sent. A NAK of a missing packet and an RNR
// NAK say which packet the server takes next.
func (w *witness) reply(psn wire.PSN) {
	if s := w.frame.AETH.Syndrome; w.frame.BTH.Opcode == wire.RCAck && (s.IsRNR() || s == wire.NakPSNSequence) {
		w.expected = psn
	}
	if !w.own || w.isOwn(psn) {
		w.replies++
	}
}

// isOwn reports whether the answer w.frame is a response to the packet with the PSN `row`, or a NAK
// of it.
func (w *witness) isOwn(psn wire.PSN) bool {
	ack := w.frame.BTH.Opcode == wire.RCAck && w.frame.AETH.Syndrome.IsAck()
	return psn == w.row && !ack
}

// verdict reports whether the requester was right to give up: it made as many rounds as its retry
// count, with as many losses and no answer, and the server has answered if it had to.
func (w *witness) verdict() (note string, kept bool) {
	if w.rounds < retries || w.lost < retries || w.answered || w.owed > 0 && w.replies == 0 {
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
