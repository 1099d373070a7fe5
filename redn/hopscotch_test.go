package redn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/redn/hopscotch"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// hopMemory is a part of a server's memory, with a table whose values begin at offset values. It calls then
// after each copy of a bucket, with the key that was in it.
type hopMemory struct {
	b      []byte
	values int
	then   func(former redn.Operand)
}

func (m *hopMemory) WriteAt(p []byte, off int) error {
	var former [8]byte
	copy(former[:], m.b[off:off+redn.OperandLen])
	copy(m.b[off:off+len(p)], p)
	if off < m.values {
		m.then(redn.Operand(binary.LittleEndian.Uint64(former[:])))
	}
	return nil
}

func (m *hopMemory) ReadAt(p []byte, off int) error {
	copy(p, m.b[off:off+len(p)])
	return nil
}

// The NIC looks keys up in a hopscotch table: the client sends only what it computes from the key. While the
// table fills to 0.85, it finds a key after each copy of an insertion that moves entries.
func TestHopscotchLookup(t *testing.T) {
	s := newServed(t, lookupRing, lookupRing, false)
	shape := hopscotch.Shape{Len: buckets, Hashes: 2, Neighbourhood: 2, Value: valueLen}
	at := s.place["table"]
	if at+shape.ValueAt(0) != s.place["values"] {
		t.Fatal("the values are not behind the buckets")
	}
	m := &hopMemory{s.Memory[at:][:shape.Size()], shape.ValueAt(0), func(redn.Operand) {}}
	table, err := hopscotch.New(shape, m, s.Code.At(at, shape.Size()))
	if err != nil {
		t.Fatal(err)
	}
	post := func() {
		sges, err := s.l.Request(shape.Probes())
		if err != nil {
			t.Fatal(err)
		}
		s.write(s.l.Worker)
		s.write(s.l.Answers)
		if err := s.answers.PostRecv([]verbs.RecvWR{{SGL: sges}}); err != nil {
			t.Fatal(err)
		}
	}
	s.l.Start(s.masterQueue)
	post()
	if err := s.master.Doorbell(s.Now, s.write(s.masterQueue)); err != nil {
		t.Fatal(err)
	}
	s.Settle()
	value := func(key redn.Operand) []byte {
		return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, uint64(key)), valueLen/8)
	}
	lookups := 0
	get := func(key redn.Operand, there bool) {
		t.Helper()
		lookups++
		post()
		got, hits := s.ask(shape.AppendRequest(nil, key, s.Code.Addr+uint64(at)), shape.Probes()+1, true)
		if there != (hits > 0) || there && !bytes.Equal(got, value(key)) {
			t.Fatalf("lookup %d of %#x, which is there: %v: %d hits, % x", lookups, key, there, hits, got)
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	var keys []redn.Operand
	table.Wait = func() {}
	m.then = func(former redn.Operand) { // nothing is deleted yet: the entry has hopped
		if former != 0 {
			get(former, true)
		}
	}
	for table.Load() < 0.85 {
		key := redn.Operand(1 + rnd.Uint64N(1<<48-1))
		if err := table.Insert(key, value(key)); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	m.then = func(redn.Operand) {}
	for i, key := range keys {
		get(key, true)
		if i%4 == 0 {
			if err := table.Delete(key); err != nil {
				t.Fatal(err)
			}
			get(key, false)
		}
	}
	if err := table.Insert(keys[1], value(keys[1])); !errors.Is(err, hopscotch.ErrExists) {
		t.Error(err)
	}
	if n := s.NIC.Counters().RingRefused; n != 0 || table.Hops() == 0 {
		t.Errorf("%d entries were refused, %d hops", n, table.Hops())
	}
	t.Logf("%d lookups, load %.2f, %d hops", lookups, table.Load(), table.Hops())
}
