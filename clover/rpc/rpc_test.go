package rpc

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/clover/layout"
)

func requests() []Request {
	l := layout.Location{Handle: 7, Version: 3}
	gc := Request{Seq: 6, Op: OpGC, N: 2, Client: 1, Epoch: 9}
	gc.Records[0] = Record{Key: 1, Heard: 1 << 50, New: layout.Location{Handle: 8, Version: 1}}
	gc.Records[1] = Record{Key: 2, New: l, Deleted: true}
	gc.Want, gc.Near = 48, 3
	return []Request{
		{Seq: 1, Op: OpHello, BufAddr: 1 << 40, BufRKey: 99},
		{Seq: 2, Op: OpAlloc, Class: 3, N: 16, Client: 1, Epoch: 2},
		{Seq: 3, Op: OpQuery, Key: 1 << 63, Client: 1},
		{Seq: 4, Op: OpOpen, Key: 5, At: l, Client: 1},
		{Seq: 5, Op: OpBeat, Client: 1, Epoch: 3},
		gc,
		{Seq: 7, Op: OpBye, Client: 1},
		{Seq: 8, Op: OpStat},
		{Seq: 10, Op: OpReports, Parts: []Part{{Client: 1<<16 | 3, Seq: 7, Records: gc.Records[:2]}, {Client: 1<<16 | 4, Seq: 1, Records: gc.Records[:1]}}},
	}
}

func TestRequests(t *testing.T) {
	for _, in := range requests() {
		b := in.AppendTo(nil)
		var out Request
		if err := out.Parse(b); err != nil || len(b) > MaxRequest {
			t.Errorf("%v: %v, %d bytes", in.Op, err, len(b))
		}
		if d := cmp.Diff(in, out); d != "" {
			t.Errorf("%v: %s", in.Op, d)
		}
		for n := range b {
			if in.Op == OpReports && n == requestHead+in.Parts[0].Len() {
				continue // a request with the first part alone
			}
			if err := out.Parse(b[:n]); err == nil {
				t.Errorf("%v: %d of %d bytes are taken for a request", in.Op, n, len(b))
			}
		}
	}
}

func answers() []Answer {
	a := Answer{Seq: 9, Epoch: 4, N: 1, Slot: 77}
	a.Locations[0] = layout.Location{Handle: 5, Version: 200}
	servers := make([]Server, layout.MaxServers)
	for i := range servers {
		servers[i] = Server{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), uint64(i + 1)}
	}
	w := &Welcome{
		Incarnation: 9,
		Client:      3, Lease: time.Second, Format: layout.Hardened, Servers: servers,
		Space: layout.Space{Servers: layout.MaxServers, Shortcuts: 9, Entries: layout.Counts{3: 8}},
	}
	return []Answer{a, {Seq: 10, Status: NotFound}, {Seq: 11, Welcome: w}, {Seq: 12, Stats: &Stats{Requests: 1, NodeStats: NodeStats{Worn: 9}, Servers: []Share{{1, 2, 3}, {4, 5, 6}}}}}
}

func TestAnswers(t *testing.T) {
	for _, in := range answers() {
		b := in.AppendTo(nil)
		var out Answer
		op := OpQuery
		switch {
		case in.Welcome != nil:
			op = OpHello
		case in.Stats != nil:
			op = OpStat
		}
		if err := out.Parse(b, op); err != nil || len(b) > MaxAnswer {
			t.Errorf("%d: %v, %d bytes", in.Seq, err, len(b))
		}
		if d := cmp.Diff(in, out, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("%d: %s", in.Seq, d)
		}
	}
}

func TestNames(t *testing.T) {
	for o := Op(1); int(o) < opEnd; o++ {
		if opNames[o] == "" {
			t.Errorf("request %d has no name", o)
		}
	}
	if OK.String() != "ok" || Busy.String() != "busy" || Status(99).String() != "status(99)" || Op(99).String() != "op(99)" {
		t.Errorf("%v %v %v %v", OK, Busy, Status(99), Op(99))
	}
}

func FuzzParse(f *testing.F) {
	for _, r := range requests() {
		f.Add(r.AppendTo(nil))
	}
	for _, a := range answers() {
		f.Add(a.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		if r.Parse(b) == nil {
			var again Request
			if err := again.Parse(r.AppendTo(nil)); err != nil {
				t.Errorf("a request that was parsed does not parse after encoding: %v", err)
			}
		}
		var a Answer
		for _, op := range []Op{OpHello, OpStat, OpQuery} {
			if a.Parse(b, op) == nil && a.Welcome == nil && a.N > MaxBatch {
				t.Errorf("%d locations", a.N)
			}
		}
	})
}
