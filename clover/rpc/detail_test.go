package rpc

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// Each field of a request arrives with it, at both ends of its range, and not with requests that do
// not have it.
func TestFieldsOfRequests(t *testing.T) {
	node := layout.Location{Handle: 7, Version: 3}
	for _, in := range []Request{
		{Op: OpHello, Quiet: true, Client: 5, Owner: 1<<32 - 1},
		{Op: OpHello, Owner: 1},
		{Op: OpBye, Quiet: true, Client: 5},
		{Op: OpAlloc, N: MaxBatch, Near: 1},
		{Op: OpAlloc, N: 1, Near: layout.MaxServers, Tombstone: true, Class: layout.Classes - 1},
		{Op: OpAlloc, N: 1, Tombstone: true},
		{Op: OpAlloc},
		{Op: OpQuery, Key: 1<<64 - 1, At: node},
		{Op: OpBeat, N: MaxBatch, Epoch: 1<<32 - 1},
		{Op: OpReturn, N: 1, Records: [MaxBatch]Record{{New: node}}},
		{Op: OpStat, BufAddr: 1<<64 - 1, BufRKey: 1<<32 - 1},
	} {
		var out Request
		if err := out.Parse(in.AppendTo(nil)); err != nil {
			t.Errorf("%+v: %v", in, err)
		}
		if d := cmp.Diff(in, out); d != "" {
			t.Errorf("%v: %s", in.Op, d)
		}
	}
	for _, in := range []Request{{Op: OpBeat, Quiet: true}, {Op: OpBeat, Tombstone: true}, {Op: OpBeat, Near: 3}, {Op: OpQuery, Quiet: true}} {
		var out Request
		if err := out.Parse(in.AppendTo(nil)); err != nil || out.Quiet || out.Tombstone || out.Near != 0 || out.N != 0 {
			t.Errorf("%+v becomes %+v, %v", in, out, err)
		}
	}
	used := Request{Near: 5, Quiet: true, Tombstone: true, Owner: 3, Key: 9, At: node, Parts: make([]Part, 1)}
	if err := used.Parse((&Request{Op: OpBeat}).AppendTo(nil)); err != nil || used.Near != 0 || used.Quiet || used.Tombstone || used.Owner != 0 ||
		used.Key != 0 || used.At != (layout.Location{}) || used.Parts != nil {
		t.Errorf("a request that is read into a used one: %+v, %v", used, err)
	}
}

// What is out of bounds in a request is no message.
func TestRequestsOutOfBounds(t *testing.T) {
	le := binary.LittleEndian
	hello := (&Request{Op: OpHello}).AppendTo(nil)
	node := layout.Location{Handle: 7, Version: 3}
	open := (&Request{Op: OpOpen, At: node}).AppendTo(nil)
	query := (&Request{Op: OpQuery, At: node}).AppendTo(nil)
	gc := (&Request{Op: OpGC, N: 1, Records: [MaxBatch]Record{{Heard: 5, New: node}}}).AppendTo(nil)
	part := Part{Client: 1, Seq: 1, Records: []Record{{Heard: 5, New: node}}}
	reports := (&Request{Op: OpReports, Parts: []Part{part}}).AppendTo(nil)
	for what, c := range map[string]struct {
		b      []byte
		change func(b []byte)
		ok     bool
	}{
		"as it is":                 {hello, func([]byte) {}, true},
		"no op":                    {hello, func(b []byte) { b[4] = 0 }, false},
		"an op behind the last":    {(&Request{Op: OpBeat}).AppendTo(nil), func(b []byte) { b[4] = byte(opEnd) }, false},
		"a class behind the last":  {hello, func(b []byte) { b[5] = byte(layout.Classes) }, false},
		"the last class":           {hello, func(b []byte) { b[5] = byte(layout.Classes - 1) }, true},
		"17 of something":          {(&Request{Op: OpBeat}).AppendTo(nil), func(b []byte) { b[6] = MaxBatch + 1 }, false},
		"OPEN without a node":      {open, func(b []byte) { clear(b[requestHead+8:]) }, false},
		"QUERY without a node":     {query, func(b []byte) { clear(b[requestHead+8:]) }, true},
		"QUERY with half a node":   {query, func(b []byte) { le.PutUint64(b[requestHead+8:], 2) }, false},
		"a record":                 {gc, func([]byte) {}, true},
		"a record without node":    {gc, func(b []byte) { clear(b[requestHead+wantLen+16:]) }, false},
		"as many nodes as a batch": {gc, func(b []byte) { b[requestHead] = MaxBatch }, true},
		"more nodes than a batch":  {gc, func(b []byte) { b[requestHead] = MaxBatch + 1 }, false},
		"a part":                   {reports, func([]byte) {}, true},
		"a part of nothing":        {reports, func(b []byte) { b[requestHead+8] = 0 }, false},
		"a part of two records":    {reports, func(b []byte) { b[requestHead+8] = 2 }, false},
		"a part with a bad record": {reports, func(b []byte) { clear(b[requestHead+partLen+16:]) }, false},
	} {
		b := append([]byte(nil), c.b...)
		c.change(b)
		var r Request
		if err := r.Parse(b); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	many := Request{Op: OpReports, Parts: []Part{{Client: 1, Seq: 1, Records: make([]Record, MaxBatch)}}}
	for i := range many.Parts[0].Records {
		many.Parts[0].Records[i].New = node
	}
	b := many.AppendTo(nil)
	if err := new(Request).Parse(b); err != nil {
		t.Errorf("%d records in a part: %v", MaxBatch, err)
	}
	many.Parts[0].Records = append(many.Parts[0].Records, Record{New: node})
	if err := new(Request).Parse(many.AppendTo(nil)); err == nil {
		t.Errorf("%d records in a part are taken", MaxBatch+1)
	}
	for n, ok := range map[int]bool{0: false, 1: false, partLen - 1: false} {
		if err := new(Request).Parse(append((&Request{Op: OpReports}).AppendTo(nil), make([]byte, n)...)); (err == nil) != ok {
			t.Errorf("%d bytes of parts: %v", n, err)
		}
	}
	if part.Len() != 36 || MaxParts != 1548 {
		t.Errorf("a part has %d bytes, there is room for %d", part.Len(), MaxParts)
	}
}

// Numbers of requests have 31 bits and a slot, and wrap around.
func TestAfter(t *testing.T) {
	for _, c := range []struct {
		seq, than uint32
		want      bool
	}{
		{2, 0, true},
		{0, 2, false},
		{2, 2, false},
		{3, 2, false},
		{2, 3, false},
		{4, 3, true},
		{0, 0xfffffffe, true},
		{1, 0xffffffff, true},
		{0xfffffffe, 0, false},
		{0x7ffffffe, 0, true},
		{0x80000002, 0, false},
	} {
		if After(c.seq, c.than) != c.want {
			t.Errorf("%#x after %#x: %v", c.seq, c.than, !c.want)
		}
	}
	if int(OpReports)+1 != opEnd || Op(opEnd).String() != "op(11)" || Op(0).String() != "op(0)" || Done.String() != "done before" || (Done+1).String() != "status(9)" {
		t.Errorf("%v, %v, %v, %v", Op(opEnd), Op(0), Done, Done+1)
	}
}

// Every counter of a server arrives with its own value.
func TestStatsArrive(t *testing.T) {
	var s Stats
	for i, f := range s.fields() {
		if *f != 0 {
			t.Fatalf("field %d is there twice", i)
		}
		*f = uint64(i + 1)
	}
	in := Answer{Stats: &s}
	b := in.AppendTo(nil)
	var out Answer
	if err := out.Parse(b, OpStat); err != nil || cmp.Diff(in, out) != "" {
		t.Errorf("%v: %s", err, cmp.Diff(in, out))
	}
	if err := out.Parse(b[:len(b)-1], OpStat); err == nil {
		t.Error("an answer without the end of the last counter is taken")
	}
}

// Each field of a Welcome arrives, and an answer that is short, or describes no space, is none.
func TestWelcome(t *testing.T) {
	space := layout.Space{Servers: 2, Shortcuts: 9}
	space.ShareIn(8*layout.UsualSegment, layout.Classes-1)
	in := Answer{Seq: 1, Scarce: true, Welcome: &Welcome{
		Client: 1, Owner: 2, Incarnation: 3, Lease: 4, Space: space, Format: layout.Keyed,
		Servers: []Server{{netip.MustParseAddr("10.0.0.1"), 5}, {netip.MustParseAddr("fd00::1"), 1<<64 - 1}},
	}}
	b := in.AppendTo(nil)
	var out Answer
	if err := out.Parse(b, OpHello); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, out, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	for n := range b {
		if err := out.Parse(b[:n], OpHello); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(b))
		}
	}
	for what, change := range map[string]func(w *Welcome){
		"no lease":         func(w *Welcome) { w.Lease = 0 },
		"a negative lease": func(w *Welcome) { w.Lease = -time.Second },
		"no shortcuts":     func(w *Welcome) { w.Space.Shortcuts = 0 },
	} {
		w := *in.Welcome
		change(&w)
		bad := Answer{Welcome: &w}
		if err := out.Parse(bad.AppendTo(nil), OpHello); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b[answerHead+20] = 4 // no format has this bit
	if err := out.Parse(b, OpHello); !errors.Is(err, ErrMessage) {
		t.Errorf("an unknown format: %v", err)
	}
	refused := Answer{Seq: 1, Status: Refused, Slot: 3}
	for _, op := range []Op{OpHello, OpStat} {
		if err := out.Parse(refused.AppendTo(nil), op); err != nil || out.Welcome != nil || out.Stats != nil || out.Slot != 3 {
			t.Errorf("%v: %+v, %v", op, out, err)
		}
	}
}

// An answer has as many locations as it says, at most MaxBatch, and no other words.
func TestLocationsOfAnswers(t *testing.T) {
	in := Answer{Seq: 1, N: MaxBatch, Slot: 1<<32 - 1, Epoch: 1<<32 - 1, Status: Done}
	for i := range in.Locations {
		in.Locations[i] = layout.Location{Handle: layout.Handle(i + 1), Version: 1}
	}
	b := in.AppendTo(nil)
	var out Answer
	if err := out.Parse(b, OpAlloc); err != nil || cmp.Diff(in, out) != "" {
		t.Errorf("%v: %s", err, cmp.Diff(in, out))
	}
	for n := range b {
		if err := out.Parse(b[:n], OpAlloc); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(b))
		}
	}
	clear(b[len(b)-8:])
	if err := out.Parse(b, OpAlloc); err == nil {
		t.Error("no location is taken for one")
	}
	b = append(in.AppendTo(nil), make([]byte, 8)...)
	b[6] = MaxBatch + 1
	if err := out.Parse(b, OpAlloc); err == nil {
		t.Error("17 locations are taken")
	}
}
