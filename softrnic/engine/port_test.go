package engine

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A smaller MTU is the port's at once. A queue pair that is connected keeps its path MTU: packets that
// fit are sent, longer ones are counted and lost. A larger path MTU than the port's is refused.
func TestSmallerMTU(t *testing.T) {
	p := newPair(t, nil)
	write := func(n int) verbs.SendWR {
		return verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, n)}, RemoteAddr: p.b.base, RKey: p.b.key}
	}
	p.a.e.Port.SetMTU(575)
	if d := p.a.e.Device(); d.LinkMTU != 575 || d.ActiveMTU != verbs.MTU256 {
		t.Errorf("link MTU %d, path MTU %d", d.LinkMTU, d.ActiveMTU)
	}
	p.post(t, p.a, write(64))
	if len(p.a.out.Frames) != 1 || p.a.e.Counters().TooLong != 0 {
		t.Errorf("%d frames of a short WRITE, %d too long", len(p.a.out.Frames), p.a.e.Counters().TooLong)
	}
	p.settle(t)
	p.post(t, p.a, write(600))
	if len(p.a.out.Frames) != 0 || p.a.e.Counters().TooLong != 1 {
		t.Errorf("%d frames of a long WRITE, %d too long", len(p.a.out.Frames), p.a.e.Counters().TooLong)
	}
	p.run(t, clock.Time(20e9))
	if wc := p.a.poll(t); len(wc) == 0 || wc[len(wc)-1].Status != verbs.RetryExcErr {
		t.Errorf("completions %+v, want retries exceeded", wc)
	}
	if err := connectRTR(p, verbs.MTU512); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("path MTU 512: %v", err)
	}
	if err := connectRTR(p, verbs.MTU256); err != nil {
		t.Error(err)
	}
}

func connectRTR(p *pair, mtu verbs.MTU) error {
	q := p.a.qp
	if err := errors.Join(q.ToReset(), q.ToInit(verbs.ToInit{})); err != nil {
		return err
	}
	return q.ToRTR(0, verbs.ToRTR{DestQPN: p.b.qp.Num(), DestGID: p.b.e.cfg.GIDs[0], PathMTU: mtu})
}

// An address that is gone is a free entry, which no new connection can use; one that is connected
// goes on. A new address can be used at once.
func TestAddressesChange(t *testing.T) {
	p := connectPair(t, newSide(t, newEngine(t, "a", 1, macA, nil, ipA, ip6A)), newSide(t, newEngine(t, "b", 2, macB, nil, ipB, ip6B)), 1, verbs.MTU1024)
	table := append(p.a.e.Config().GIDs[:1:1], verbs.GID{})
	p.a.e.SetGIDs(append(table, verbs.GIDOf(netip.MustParseAddr("fd00::77"))))
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte{1}, RemoteAddr: p.b.base, RKey: p.b.key})
	p.settle(t)
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
		t.Errorf("a connection from the address that is gone: %+v", wc)
	}
	free := netip.IPv6Unspecified()
	if e := p.a.e; e.Port.isMine(verbs.GIDOf(free)) || e.Port.pathTo(free, ipB).SourceGID != -1 {
		t.Error("a free entry is an address of the port")
	}
	for index, ok := range map[int]bool{1: false, 2: true} {
		q := p.a.qp
		if err := errors.Join(q.ToReset(), q.ToInit(verbs.ToInit{})); err != nil {
			t.Fatal(err)
		}
		err := q.ToRTR(0, verbs.ToRTR{DestQPN: p.b.qp.Num(), DestGID: p.b.e.cfg.GIDs[1], SourceGID: index, PathMTU: verbs.MTU256})
		if (err == nil) != ok {
			t.Errorf("index %d: %v", index, err)
		}
	}
}

// A NIC that was off has the carrier that the link got meanwhile.
func TestCarrierOfANICThatWasOff(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	for _, up := range []bool{false, true} {
		e.Down(0)
		e.SetLink(up)
		e.Up()
		if e.Port.LinkUp() != up || e.Device().PortDown == up {
			t.Errorf("link up %v: %v, %+v", up, e.Port.LinkUp(), e.Device())
		}
	}
}
