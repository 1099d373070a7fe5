package scenario

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
)

// stateOracle sees all packets of a run of state-store: in front of the switch the requests that
// must be counted, and in front of the stores (the servers whose memory has the counters) the
// switch's FETCH_ADDs. It uses no state of the switch.
type stateOracle struct {
	run      *stateRun
	requests int
	want     []uint64 // by counter: the sum that requests have added
	keys     map[stateCounted]*stateSum
	seen     map[stateKey]bool           // the requests to ms0 so far; a READ has an entry for each PSN
	adds     map[stateKey]wire.AtomicETH // the operands of the switch's FETCH_ADDs so far
	layout   statestore.Layout
	err      error
}

// stateKey names a request packet. Its retransmissions have the same stateKey.
type stateKey struct {
	from, to netip.Addr
	qpn      wire.QPN
	psn      wire.PSN
}

// wrap puts the oracle in front of the switch and of the stores.
func (o *stateOracle) wrap(name string, n simnet.Node) simnet.Node {
	switch name {
	case rackfile.SwitchName:
		return shown(n, o.request)
	case "ms1", "ms2":
		return shown(n, o.add)
	}
	return n
}

func keyOf(f *wire.Frame) stateKey {
	return stateKey{f.SrcAddr().Unmap(), f.DstAddr().Unmap(), f.BTH.DestQP, f.BTH.PSN}
}

// request counts a request to ms0, unless it is a retransmission.
func (o *stateOracle) request(f *wire.Frame) {
	h := o.run.env.rack.Host("ms0").Spec
	t := handler.Target{Opcode: f.BTH.Opcode, From: f.SrcAddr().Unmap(), To: f.BTH.DestQP}
	switch op := f.BTH.Opcode; {
	case f.Eth.Dst != h.MAC || op.Service() != wire.ServiceRC:
		return
	case op.Has(wire.HasRETH):
		t.VA, t.Length, t.RKey = f.RETH.VA, f.RETH.Length, f.RETH.RKey
	case op.Has(wire.HasAtomicETH):
		t.VA, t.Length, t.RKey = f.AtomicETH.VA, 8, f.AtomicETH.RKey
	default:
		return
	}
	k, again := keyOf(f), false
	for range o.span(f) {
		again = again || o.seen[k]
		o.seen[k] = true
		k.psn = k.psn.Next()
	}
	if again {
		return
	}
	if o.layout.Cells == 0 {
		o.layout = statestore.LayoutOf(&o.run.env.rack.Spec.Switch.Rules[0])
	}
	o.requests++
	for row := range o.run.plan.rows {
		o.want[o.slotOf(&t, row)] += o.layout.Amount(&t)
	}
	o.sum(&t).amount += o.layout.Amount(&t)
}

// slotOf returns the number of the counter that counts request t in the given row.
func (o *stateOracle) slotOf(t *handler.Target, row int) int {
	return o.layout.Slot(o.run.env.rack.Spec.Switch.Rules[0].Server, t, row)
}

// stateCounted identifies a flow or a unit of memory for which a rule counts requests.
type stateCounted struct {
	from netip.Addr
	to   wire.QPN
	unit uint64
}

// stateSum is the amount that the oracle expects for one flow or unit of memory. target is the
// first request that the oracle has counted for this flow or unit. slotOf computes from target
// which counters count it.
type stateSum struct {
	target handler.Target
	amount uint64
}

// sum returns the expected amount of the flow or unit of memory to which a request belongs.
func (o *stateOracle) sum(t *handler.Target) *stateSum {
	k := stateCounted{from: t.From, to: t.To}
	if o.run.plan.per == "address" {
		k = stateCounted{unit: t.VA >> map[string]uint{"word": 3, "line": 6, "page": 12}[o.run.plan.unit]}
	}
	if o.keys[k] == nil {
		o.keys[k] = &stateSum{target: *t}
	}
	return o.keys[k]
}

// span returns how many PSNs a request takes. A requester that has received a part of the response
// to a READ requests the rest with a PSN in the middle of these.
func (o *stateOracle) span(f *wire.Frame) int {
	mtu := int(o.run.plan.params.PathMTU)
	if f.BTH.Opcode != wire.RCReadRequest {
		return 1
	}
	return max(1, (int(f.RETH.Length)+mtu-1)/mtu)
}

// add checks a FETCH_ADD of the switch: each retransmission must be equal to the first
// transmission.
func (o *stateOracle) add(f *wire.Frame) {
	if f.BTH.Opcode != wire.RCFetchAdd {
		return
	}
	k := keyOf(f)
	former, known := o.adds[k]
	if !known {
		o.adds[k] = f.AtomicETH
	} else if former != f.AtomicETH && o.err == nil {
		o.err = fmt.Errorf("FETCH_ADD %v was sent with %+v and again with %+v", k, former, f.AtomicETH)
	}
}
