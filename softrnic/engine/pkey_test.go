package engine

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// withPKeys gives a NIC a table.
func withPKeys(table ...uint16) func(*Config) { return func(c *Config) { c.PKeys = table } }

// Two P_Keys match if they name the same partition and at least one is a full member, over IPv6 as
// over IPv4 (IBTA 10.9.3). Packets that do not match are dropped without an answer, and counted.
// The queue pair names its own by an index.
func TestPKeys(t *testing.T) {
	for _, c := range []struct {
		a, b uint16
		want bool
	}{
		{0xffff, 0xffff, true},
		{0xffff, 0x7fff, true},
		{0x7fff, 0xffff, true},
		{0x7fff, 0x7fff, false},
		{0x8001, 0x8001, true},
		{0x8001, 1, true},
		{1, 1, false},
		{0x8001, 0x8002, false},
	} {
		a := newSide(t, newEngine(t, "a", 1, macA, withPKeys(0x8123, c.a), ipA, ip6A))
		b := newSide(t, newEngine(t, "b", 2, macB, withPKeys(0x8456, 0x8789, c.b), ipB, ip6B))
		p := connectPair(t, a, b, 1, verbs.MTU1024)
		for _, x := range []struct {
			s, peer *side
			index   int
		}{{a, b, 1}, {b, a, 2}} {
			q := x.s.qp
			for _, err := range []error{
				q.ToReset(), q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite, PKeyIndex: x.index}),
				q.ToRTR(0, verbs.ToRTR{DestQPN: x.peer.qp.Num(), DestGID: x.peer.e.cfg.GIDs[1], SourceGID: 1, PathMTU: verbs.MTU1024}),
				q.ToRTS(0, verbs.ToRTS{Timeout: 14}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		p.post(t, a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte{1}, RemoteAddr: b.base, RKey: b.key})
		if got := parse(t, a.out.Frames[0].Data).BTH.PKey; got != c.a {
			t.Errorf("sent with P_Key %#x, want %#x", got, c.a)
		}
		p.settle(t)
		if got := b.buf[0] == 1; got != c.want || (b.e.counters.RxPkeyErr == 0) != c.want || (b.e.counters.SentPkts == 0) == c.want {
			t.Errorf("P_Keys %#x and %#x: arrived %v, %d dropped, %d answered", c.a, c.b, got, b.e.counters.RxPkeyErr, b.e.counters.SentPkts)
		}
	}
}

// A partition has a number other than 0 (IBTA 10.9.3), and stands once in a table of bounded
// length; a queue pair cannot name an entry that is not there.
func TestPKeyTable(t *testing.T) {
	if verbs.SamePartition(0x8000, 0x8000) {
		t.Error("partition 0 is no partition")
	}
	long := make([]uint16, MaxPKeys+1)
	for i := range long {
		long[i] = uint16(i + 1)
	}
	for want, table := range map[string][]uint16{
		"names no partition": {0xffff, 0x8000}, "0x0 names no": {0}, "of one partition": {0x8001, 1}, "at most 128": long,
	} {
		if err := validPKeys(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("table %#x: %v, want %q", table[:min(len(table), 3)], err, want)
		}
	}
	if err := validPKeys(long[:MaxPKeys]); err != nil {
		t.Error(err)
	}
	e := newEngine(t, "a", 1, macA, withPKeys(0x8001, 2), ipA)
	if got := e.Device().PKeys; len(got) != 2 || got[0] != 0x8001 || got[1] != 2 {
		t.Errorf("table %#x", got)
	}
	s := newSide(t, e)
	if err := s.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{-1, 2} {
		if err := s.qp.ToInit(verbs.ToInit{PKeyIndex: i}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("index %d: %v", i, err)
		}
	}
	if err := s.qp.ToInit(verbs.ToInit{PKeyIndex: 1}); err != nil {
		t.Error(err)
	}
}

// Management datagrams go and are taken in any partition of the port's table (IBTA 10.9.3): they
// carry the P_Key of the request, and answers the one of the port that answers. In a foreign
// partition they are dropped.
func TestPKeysOfGSI(t *testing.T) {
	a := newSide(t, newEngine(t, "a", 1, macA, withPKeys(0xffff, 0x8001, 3), ipA))
	b := newSide(t, newEngine(t, "b", 2, macB, withPKeys(0x8002, 1, 3), ipB))
	p := connectPair(t, a, b, 0, verbs.MTU1024)
	if _, err := gsi(t, b.e).Listen(testService, netip.Prefix{}, 4); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pkey, answer uint16 // 0: none
		dropped      uint64
	}{{0x8001, 1, 0}, {0xffff, 0, 1}, {3, 0, 2}} {
		req := mad.REQ{Service: testService + 1, QPN: a.qp.Num(), MTU: 3, PKey: c.pkey}
		conn, err := gsi(t, a.e).Connect(p.now, ipA, ipB, req, &a.out)
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, a.out.Frames[0].Data).BTH.PKey; got != c.pkey {
			t.Errorf("asked with P_Key %#x, want %#x", got, c.pkey)
		}
		for _, f := range a.out.Frames {
			b.e.Frame(p.now, 0, f, &b.out)
		}
		var got uint16
		for _, f := range b.out.Frames {
			got = parse(t, f.Data).BTH.PKey
			a.e.Frame(p.now, 0, f, &a.out)
		}
		if got != c.answer || b.e.counters.RxPkeyErr != c.dropped || (conn.End == cm.EventRejected) != (c.answer != 0) {
			t.Errorf("P_Key %#x: answered with %#x, %d dropped, end %v", c.pkey, got, b.e.counters.RxPkeyErr, conn.End)
		}
		gsi(t, a.e).Abort(p.now, conn, &a.out)
		a.out.Reset()
		b.out.Reset()
	}
	// The REQ itself names a partition, which need not be that of its datagram.
	for _, c := range []struct {
		pkey   uint16
		reason mad.Reason
	}{{0x8001, mad.ReasonNoResources}, {0x8004, mad.ReasonUnsupported}, {1, mad.ReasonUnsupported}} {
		conn := cm.Event{Conn: 77, Owner: 99, Message: &mad.REQ{PKey: c.pkey}}
		gsi(t, b.e).request(&conn)
		if r := gsi(t, b.e).refused; len(r) != 1 || r[0].why.Reason != c.reason {
			t.Errorf("a REQ for P_Key %#x: %+v, want %v", c.pkey, r, c.reason)
		}
		gsi(t, b.e).refused = nil
	}
	if _, err := gsi(t, a.e).Connect(p.now, ipA, ipB, mad.REQ{Service: testService, QPN: a.qp.Num(), MTU: 3, PKey: 0x8004}, &a.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a P_Key that the port has not: %v", err)
	}
	if _, err := gsi(t, a.e).Resolve(p.now, ipA, ipB, mad.SIDRReq{Service: testService, PKey: wire.DefaultPKey &^ verbs.PKeyMember}, &a.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a P_Key of another membership: %v", err)
	}
}
