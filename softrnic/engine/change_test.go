package engine

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A connection whose ends have drained moves to other addresses and another partition, and goes on;
// one that cannot move stays where it is (IBTA 11.2.5.2/optional).
func TestConnectionMovesInSQD(t *testing.T) {
	unknown := netip.MustParseAddr("10.99.0.1")
	a := newSide(t, newEngine(t, "a", 1, macA, withPKeys(0xffff, 0x8001), ipA, ip6A))
	b := newSide(t, newEngine(t, "b", 2, macB, withPKeys(0xffff, 0x8001), ipB, ip6B))
	p := connectPair(t, a, b, 0, verbs.MTU1024)
	for _, x := range []struct{ s, peer *side }{{a, b}, {b, a}} {
		q := x.s.qp
		good := verbs.QPModify{
			Mask: verbs.ModifyDest | verbs.ModifyPKey | verbs.ModifyMaxRdAtomic | verbs.ModifyMaxDestRdAtomic, PKeyIndex: 1,
			Dest: verbs.AHAttr{DestGID: x.peer.e.cfg.GIDs[1], SourceGID: 1, TrafficClass: 8}, MaxRdAtomic: 2, MaxDestRdAtomic: 3,
		}
		if err := q.Modify(0, good); !errors.Is(err, verbs.ErrState) {
			t.Errorf("in RTS: %v", err)
		}
		if err := q.ToSQD(0, &x.s.out); err != nil {
			t.Fatal(err)
		}
		before, route, pkey := q.q.Query(), q.route, q.pkey
		for name, c := range map[string]struct {
			change func(a *verbs.QPModify)
			want   error
		}{
			"an index behind the table":   {func(a *verbs.QPModify) { a.PKeyIndex = 2 }, verbs.ErrInvalid},
			"an unknown address":          {func(a *verbs.QPModify) { a.Dest = verbs.AHAttr{DestGID: verbs.GIDOf(unknown)} }, verbs.ErrUnreachable},
			"a source of another family":  {func(a *verbs.QPModify) { a.Dest.SourceGID = 0 }, verbs.ErrInvalid},
			"more READs than there are":   {func(a *verbs.QPModify) { a.MaxRdAtomic = q.e.cfg.Limits.RdAtomic + 1 }, verbs.ErrLimit},
			"more resources than it has":  {func(a *verbs.QPModify) { a.MaxDestRdAtomic = q.e.cfg.Limits.RdAtomic + 1 }, verbs.ErrLimit},
			"an attribute of datagrams":   {func(a *verbs.QPModify) { a.Mask |= verbs.ModifyQKey }, verbs.ErrInvalid},
			"a number of READs below all": {func(a *verbs.QPModify) { a.MaxRdAtomic = -2 }, verbs.ErrInvalid},
		} {
			bad := good
			c.change(&bad)
			if err := q.Modify(0, bad); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if q.q.Query() != before || q.route != route || q.pkey != pkey {
				t.Errorf("%s: something has changed", name)
			}
		}
		if err := q.Modify(0, good); err != nil {
			t.Fatal(err)
		}
		got := q.q.Query()
		if got.RTS.MaxRdAtomic != 2 || got.RTR.MaxDestRdAtomic != 3 || got.Init.PKeyIndex != 1 || got.RTR.DestGID != good.Dest.DestGID || got.RTR.SourceGID != 1 {
			t.Errorf("attributes %+v", got)
		}
		if err := q.ResumeRTS(0, &x.s.out); err != nil {
			t.Fatal(err)
		}
	}
	p.post(t, a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte{1}, RemoteAddr: b.base, RKey: b.key})
	if f := parse(t, a.out.Frames[0].Data); !f.V6 || f.IPv6.TrafficClass != 8 || f.BTH.PKey != 0x8001 {
		t.Errorf("sent over IPv6: %v, traffic class %d, P_Key %#x", f.V6, f.IPv6.TrafficClass, f.BTH.PKey)
	}
	p.settle(t)
	if b.buf[0] != 1 {
		t.Error("the WRITE has not arrived")
	}
}
