package cloversteer

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// flow is what the machine remembers of the requests of one flow of a connection.
type flow struct {
	// ring holds the decisions about the last requests of the flow, by PSN.
	ring []decision
	// held is the index of the flow's request that waits in the switch; none: no request of the
	// flow waits. The waiting request is always the last one of the flow.
	held int32
}

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
	done bool // the switch has seen the response
	psn  wire.PSN
	rkey uint32
	target
	appended
	// server is the memory server, if the decision is about a READ of the superblock, which
	// describes the store on this server.
	server netip.Addr
}

// target is where a request was sent.
type target struct {
	// steered is true if the request was sent to another address than the client named.
	steered bool
	// asked is the address that the client named; to is the node to which the request was sent.
	asked uint64
	to    ref
	// seen is the version that the client expects. version is the version of the node to which the
	// switch sent the request. If they differ, the switch translates the response.
	seen, version layout.Version
	// format is the layout of the node that a READ returns.
	format layout.Format
}

// appended is the part of a decision that only appends use.
type appended struct {
	// compare is the operand as the switch sent it, askedCompare as the client sent it. If the
	// response has the value of compare, the append has succeeded.
	compare, askedCompare uint64
	// chain names the chain of the key to which the append goes. place is the place of the newest
	// known node of this chain when the append was sent.
	chain id
	place
	// sent is the number of the append's flight: the value of flight.sent after it was sent.
	sent uint64
	// stale is true if the entry that the client named has been reused, so that the append would
	// fail there.
	stale bool
	// node is the appended node, with its location; serial 0 means that the switch did not see the
	// node.
	node     ref
	location layout.Location
	// absorbed is true if absorbOne has changed the request, an append: the switch has sent it to
	// the header of the append's own node, with the field swap in place of the client's swap
	// operand.
	absorbed bool
	swap     uint64
}

// find returns the decision about the request with a PSN; nil if there was none, or if a later
// decision has taken its place in the ring.
func (fl *flow) find(psn wire.PSN) *decision {
	d := &fl.ring[int(psn)%len(fl.ring)]
	if d.kind == kindNone || d.psn != psn {
		return nil
	}
	return d
}

// add starts a new decision about the request with a PSN.
func (fl *flow) add(psn wire.PSN, k kind) *decision {
	d := &fl.ring[int(psn)%len(fl.ring)]
	*d = decision{kind: k, psn: psn}
	return d
}
