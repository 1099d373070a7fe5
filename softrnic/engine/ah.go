package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// AH is an address handle: the resolved path to the destination of datagrams.
type AH struct {
	e     *Engine
	pd    *PD
	num   uint32
	route route
	dead  bool
}

// CreateAH resolves an address. It fails with ErrUnreachable if no MAC address is known for it.
func (e *Engine) CreateAH(pd *PD, a verbs.AHAttr) (*AH, error) {
	const op = "create AH"
	if err := alive(op, pd.dead); err != nil {
		return nil, err
	}
	if len(e.Tables.ahs) >= e.cfg.Limits.AHs {
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d address handles exist", len(e.Tables.ahs))
	}
	r, err := e.Port.routeTo(op, a, e.Port.activeMTU())
	if err != nil {
		return nil, err
	}
	for e.Tables.nextAH++; e.Tables.ahs[e.Tables.nextAH] != nil || e.Tables.nextAH == 0; e.Tables.nextAH++ { // ends, because there are fewer handles than numbers
	}
	ah := &AH{e: e, pd: pd, num: e.Tables.nextAH, route: r}
	e.Tables.ahs[ah.num] = ah
	pd.ahs++
	return ah, nil
}

// Handle returns the number that names the address handle in work requests.
func (a *AH) Handle() uint32 { return a.num }

// Destroy ends the handle. Queued datagrams that use it are not sent.
func (a *AH) Destroy() error {
	if err := alive("destroy AH", a.dead); err != nil {
		return err
	}
	a.dead = true
	a.pd.ahs--
	delete(a.e.Tables.ahs, a.num)
	return nil
}

// checkAH refuses a work request whose address handle does not belong to the queue pair's
// protection domain.
func (q *QP) checkAH(ah verbs.AH) error {
	if a := q.e.Tables.ahs[ah.Handle()]; a == nil || a.pd != q.pd {
		return verbs.Errorf("post send", verbs.ErrInvalid, "no address handle %d in the protection domain of the queue pair", ah.Handle())
	}
	return nil
}

// datagramPort returns the UDP source port of all datagrams of a queue pair, a hash of its number.
// Linux rxe uses the same hash.
func datagramPort(n wire.QPN) uint16 {
	const golden32 = 0x61c88647
	return udpPortBase + uint16(uint32(n)*golden32>>18)
}

// ipHeader returns the IP header in the frame b. f is the parsed form of b.
func ipHeader(b []byte, f *wire.Frame) []byte {
	b = b[f.Eth.Len():]
	if f.V6 {
		return b[:f.IPv6.Len()]
	}
	return b[:f.IPv4.Len()]
}
