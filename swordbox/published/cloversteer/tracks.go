package cloversteer

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
)

const (
	// remembered is the number of requests of a connection whose steering is remembered for their
	// retransmissions. In the paper's draft, a queue pair has 128 requests in flight.
	remembered = 128
	// maxPorts is how many tracks a connection has: one for each of the UDP source ports that its
	// client has used last.
	maxPorts = 4
)

// tracks holds what the switch knows of a connection, for each UDP source port of its requests. In
// the paper, addresses, queue pair and source port name a connection (section 4.1), but a NIC may
// change this port during a connection. The switch then takes the packets for those of another
// connection, of which it knows nothing (hole 23).
type tracks struct {
	byPort []*track
	next   int // index of the track that the next port replaces when there are maxPorts tracks
	// since is Machine.changes when the tracks were made. If it is another now, the machine may have
	// missed requests, and forgets the tracks.
	since uint32
}

// track is what the switch knows of a connection whose requests come by a UDP source port.
type track struct {
	port uint16
	// in is the highest PSN that was seen; it is valid if seen is true.
	in   wire.PSN
	seen bool
	// last is the last data WRITE.
	last node
	// steered says where appends and READs went. The index is the PSN modulo remembered.
	steered [remembered]steered
}

// node is a data WRITE.
type node struct {
	written bool
	key, va uint64
}

// steered is the transformation of a request: the client named asked, and the switch sent the request
// to the address `to`. Both are equal if the request was not steered.
type steered struct {
	psn       wire.PSN
	asked, to uint64
}

// of returns the track of a UDP source port; nil if there is none.
func (r *tracks) of(port uint16) *track {
	for _, w := range r.byPort {
		if w.port == port {
			return w
		}
	}
	return nil
}

// add makes the track of a port that has none.
func (r *tracks) add(port uint16) *track {
	w := &track{port: port}
	if len(r.byPort) < maxPorts {
		r.byPort = append(r.byPort, w)
		return w
	}
	r.byPort[r.next] = w
	r.next = (r.next + 1) % maxPorts
	return w
}

// trackOf returns the track of a packet of a connection. If there is none, it makes one if add is true,
// else it returns nil.
func (m *Machine) trackOf(fl *conntrack.Flow, port uint16, add bool) *track {
	r, ok := fl.Ext.(*tracks)
	if !ok || r.since != m.changes {
		if !add {
			return nil
		}
		r = &tracks{since: m.changes}
		fl.Ext = r
	}
	if w := r.of(port); w != nil || !add {
		return w
	}
	return r.add(port)
}

// again reports whether a request comes again: its PSN is not higher than the highest one that was
// seen. If it comes for the first time, again notes its PSNs; span is how many it takes, 0 if this
// is not known.
func (w *track) again(psn wire.PSN, span int) bool {
	if w.seen && wire.Diff(psn, w.in) <= 0 {
		return true
	}
	w.in, w.seen = psn.Add(max(1, span)-1), true
	return false
}

func (w *track) at(psn wire.PSN) *steered { return &w.steered[psn%remembered] }
