package conntrack

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// rig is a table with hosts 1 to 9 at ports 1 to 9.
type rig struct {
	*Table
	t   testing.TB
	now clock.Time
	bad bool // the next packet has a wrong ICRC
}

func newRig(t testing.TB, change func(*Config)) *rig {
	cfg := Config{Connections: 64, Settle: -1}
	if change != nil {
		change(&cfg)
	}
	return &rig{Table: NewTable(cfg), t: t, now: clock.Time(time.Second)}
}

// Intact makes the rig a Checker.
func (r *rig) Intact() bool { return !r.bad }

func ip(i int) [4]byte { return [4]byte{10, 0, 0, byte(i)} }

func addr(i int) netip.Addr { return netip.AddrFrom4(ip(i)) }

func mac(i int) wire.MAC { return wire.MAC{2, 0, 0, 0, 0, byte(i)} }

// packet is a RoCEv2 packet from host a to queue pair qpn of host b.
func packet(a, b int, qpn wire.QPN, op wire.Opcode, psn wire.PSN) *wire.Frame {
	f := &wire.Frame{Eth: wire.Ethernet{Src: mac(a), Dst: mac(b)}}
	f.IPv4 = wire.IPv4{TTL: 64, DF: true, Src: ip(a), Dst: ip(b)}
	f.UDP.SrcPort = 0xc000
	f.BTH = wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: qpn, PSN: psn & (1<<24 - 1)}
	f.AETH.Syndrome = wire.AckNoCredits
	return f
}

// see passes a packet to the table with the port of its source host as ingress.
func (r *rig) see(f *wire.Frame) Seen {
	r.now++
	return r.Packet(r.now, int(f.IPv4.Src[3]), f, r)
}

// ask passes a request to the table, and counts it if it is new.
func (r *rig) ask(f *wire.Frame) Seen {
	s := r.see(f)
	if s.Flow != nil && s.Class == New && s.Bad == Fine {
		s.Flow.Advance(s.Span)
	}
	return s
}

// paired lists the known connections, as "1:0x11>2:0x22" from requester to responder, by flow ID.
func (r *rig) paired() (out []string) {
	for _, i := range r.List(r.now) {
		if i.Peer >= 0 {
			out = append(out, fmt.Sprintf("%d:%#x>%d:%#x", i.Requester.As4()[3], uint32(i.ReqQPN), i.Responder.As4()[3], uint32(i.RespQPN)))
		}
	}
	return out
}

func (r *rig) flow(a, b int, qpn wire.QPN) *Flow {
	k := key{addrsBetween(addr(a), addr(b)), qpn}
	return r.index.get(&k)
}

// learn lets host a's queue pair qa and b's qb exchange WRITEs from psn on until the table knows
// them.
func (r *rig) learn(a, b int, qa, qb wire.QPN, psn wire.PSN) *Flow {
	r.t.Helper()
	for range confirm {
		r.ask(packet(a, b, qb, wire.RCWriteOnly, psn))
		r.see(packet(b, a, qa, wire.RCAck, psn))
		psn = psn.Next()
	}
	flow := r.flow(a, b, qb)
	if flow == nil || flow.Peer == nil || flow.ReqQPN != qa || !flow.Synced() || flow.Expected != psn {
		r.t.Fatalf("not learnt: %+v", flow)
	}
	return flow
}
