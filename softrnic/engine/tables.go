package engine

import (
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// tables are the objects of one incarnation of a NIC.
type tables struct {
	up     bool
	env    *transport.Env
	pds    map[mem.PD]*PD
	mrs    map[*MR]struct{}
	cqs    map[uint32]*CQ
	qps    map[wire.QPN]*QP
	ahs    map[uint32]*AH
	srqs   map[uint32]*SRQ
	xrcds  map[*XRCD]struct{}
	mws    map[*MW]struct{}
	dms    map[*DM]struct{}
	dmUsed int // allocated bytes of device memory
	groups groups
	// order has the queue pairs in the order of their creation, so that loops over them are
	// deterministic.
	order []*QP
	// nextCQ, nextAH and nextSRQ are the numbers that were assigned last. The next incarnation
	// continues with the numbers behind them, so that an old number does not soon name a new
	// object.
	nextCQ, nextAH, nextSRQ uint32
}

// open starts an incarnation with empty tables.
func (t *tables) open(env *transport.Env) {
	*t = tables{
		up: true, env: env,
		pds: make(map[mem.PD]*PD), mrs: make(map[*MR]struct{}), cqs: make(map[uint32]*CQ), qps: make(map[wire.QPN]*QP),
		ahs: make(map[uint32]*AH), srqs: make(map[uint32]*SRQ), xrcds: make(map[*XRCD]struct{}), mws: make(map[*MW]struct{}), dms: make(map[*DM]struct{}),
		nextCQ: t.nextCQ, nextAH: t.nextAH, nextSRQ: t.nextSRQ,
	}
}

// close ends the incarnation: all objects become invalid.
func (t *tables) close() {
	for _, pd := range t.pds {
		pd.dead = true
	}
	for mr := range t.mrs {
		mr.dead = true
	}
	for _, c := range t.cqs {
		c.dead = true
	}
	for _, qp := range t.order {
		qp.dead = true
	}
	for _, ah := range t.ahs {
		ah.dead = true
	}
	for _, s := range t.srqs {
		s.dead = true
	}
	for x := range t.xrcds {
		x.dead = true
	}
	for mw := range t.mws {
		mw.dead = true
	}
	for dm := range t.dms {
		dm.dead = true
	}
	*t = tables{groups: groups{due: clock.Never}, nextCQ: t.nextCQ, nextAH: t.nextAH, nextSRQ: t.nextSRQ}
}

func (t *tables) IsUp() bool { return t.up }

// Mem returns the table of regions; nil while the NIC is down. The method SetTear of the table sets
// which memory copies a fault plan tears.
func (t *tables) Mem() *mem.Table {
	if t.env == nil {
		return nil
	}
	return t.env.Mem
}

func (t *tables) running(op string) error {
	if !t.up {
		return &verbs.OpError{Op: op, Err: verbs.ErrClosed, Detail: "the NIC is down"}
	}
	return nil
}

// newQPN returns a free queue pair number. The number is random, so that a peer cannot guess it.
func (t *tables) newQPN(r *rand.Rand) (wire.QPN, bool) {
	for range maxQPNTries {
		n := wire.QPN(r.Uint32() & 0xffffff)
		if n >= firstQPN && n < verbs.MulticastQPN && t.qps[n] == nil {
			return n, true
		}
	}
	return 0, false
}

// Objects says how many objects of each kind a NIC has.
type Objects struct {
	PDs  int `json:"pds"`
	MRs  int `json:"mrs"`
	CQs  int `json:"cqs"`
	QPs  int `json:"qps"`
	AHs  int `json:"ahs"`
	SRQs int `json:"srqs"`
	// XRCDs counts XRC domains.
	XRCDs int `json:"xrcds"`
	MWs   int `json:"mws"`
	DMs   int `json:"dms"`
	// Attachments counts attachments of queue pairs to multicast groups.
	Attachments int `json:"attachments"`
	// Bytes is the size of the registered memory.
	Bytes uint64 `json:"bytes"`
}

// Objects returns the numbers of objects, for status output.
func (t *tables) Objects() Objects {
	o := Objects{
		PDs: len(t.pds), MRs: len(t.mrs), CQs: len(t.cqs), QPs: len(t.qps),
		AHs: len(t.ahs), SRQs: len(t.srqs), XRCDs: len(t.xrcds), MWs: len(t.mws), DMs: len(t.dms),
		Attachments: t.groups.attached,
	}
	for mr := range t.mrs {
		o.Bytes += uint64(mr.region.Len())
	}
	return o
}

// target returns queue pair n, into which a fault is to be injected. It fails if the NIC is down,
// or if the queue pair does not exist or is in RESET or ERROR.
func (t *tables) target(op string, n wire.QPN) (*QP, error) {
	if err := t.running(op); err != nil {
		return nil, err
	}
	qp := t.qps[n]
	switch {
	case qp == nil:
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "no queue pair %#x", uint32(n))
	case !qp.live():
		return nil, verbs.Errorf(op, verbs.ErrState, "queue pair %#x is in %v", uint32(n), qp.q.State())
	}
	return qp, nil
}
