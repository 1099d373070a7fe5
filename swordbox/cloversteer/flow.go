package cloversteer

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// flow is what the machine remembers of the requests of one flow of a connection.
type flow struct {
	// ring is the decisions about the last requests, by PSN.
	ring []decision
	// held is the request that waits; none: no request waits. It is the last request of the flow.
	held int32
}

// kind is what a decision is about.
type kind uint8

const (
	kindNone kind = iota
	kindAppend
	kindRead
	kindSuper
)

// decision is how the machine has treated a request.
type decision struct {
	kind kind
	done bool // its response was seen
	psn  wire.PSN
	rkey uint32
	target
	appended
	// server is the memory server, of a decision about a superblock.
	server netip.Addr
}

// target is where a request was sent.
type target struct {
	// steered: to is another address than the client asked for.
	steered bool
	// asked is the address that the client named, to the node that the request went to.
	asked uint64
	to    ref
	// seen is the version that the client expects the node to have, version that of the node that
	// the request went to. If they differ, the response is translated.
	seen, version layout.Version
	// format is that of the node that a READ returns.
	format layout.Format
}

// appended is the part of a decision that only appends have.
type appended struct {
	// compare is the operand as it was sent, askedCompare as the client sent it. A response with
	// the value of compare is a success.
	compare, askedCompare uint64
	// chain is the key, and place what was known of the chain when the append was sent.
	chain id
	place
	// sent is the number of the flight.
	sent uint64
	// stale: the entry that the client named has been reused since, so the append must fail there.
	stale bool
	// node is the appended node, with its location; serial 0: the switch did not see it.
	node     ref
	location layout.Location
	// absorbed: the request goes to the header of node itself, with this operand instead of the
	// client's; see absorb.
	absorbed bool
	swap     uint64
}

// find returns the decision about a PSN; nil if there was none or it was overwritten.
func (fl *flow) find(psn wire.PSN) *decision {
	d := &fl.ring[int(psn)%len(fl.ring)]
	if d.kind == kindNone || d.psn != psn {
		return nil
	}
	return d
}

// add makes room for the decision about a PSN.
func (fl *flow) add(psn wire.PSN, k kind) *decision {
	d := &fl.ring[int(psn)%len(fl.ring)]
	*d = decision{kind: k, psn: psn}
	return d
}
