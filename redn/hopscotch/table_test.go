package hopscotch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
)

// plain is memory that calls then after each copy.
type plain struct {
	b    []byte
	then func()
}

func (p *plain) WriteAt(b []byte, off int) error {
	copy(p.b[off:off+len(b)], b)
	if p.then != nil {
		p.then()
	}
	return nil
}

func (p *plain) ReadAt(b []byte, off int) error {
	copy(b, p.b[off:off+len(b)])
	return nil
}

const base = 1 << 32 // address of the memory

func made(t *testing.T, s Shape) (*Table, *plain) {
	t.Helper()
	m := &plain{b: make([]byte, s.Size())}
	table, err := New(s, m, redn.Mem{Addr: base, LKey: 7})
	if err != nil {
		t.Fatal(err)
	}
	return table, m
}

func valueOf(key redn.Operand, version uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(key))
	return binary.LittleEndian.AppendUint64(b, version)
}

// lookup does on the bytes what the NIC does, with a client's request: it reads bucket after
// bucket, and calls between before each.
func lookup(s Shape, m []byte, key redn.Operand, between func()) (found [][]byte) {
	request := s.AppendRequest(nil, key, base)
	for ; len(request) > 0; request = request[redn.ProbeLen:] {
		between()
		b := m[binary.BigEndian.Uint64(request[redn.OperandLen:])-base:]
		var k [8]byte
		copy(k[:], b[:redn.OperandLen])
		if redn.Operand(binary.LittleEndian.Uint64(k[:])) != key {
			continue
		}
		at := b[redn.OperandLen:]
		if s.Form == Slots {
			at = b[redn.OperandLen+12:]
		}
		found = append(found, bytes.Clone(m[binary.BigEndian.Uint64(at)-base:][:s.Value]))
	}
	return found
}

// Random changes agree with a map, for tables of several shapes, and every lookup on the bytes finds
// the value of its key after each change.
func TestModel(t *testing.T) {
	for _, s := range []Shape{
		{Len: 300, Hashes: 2, Neighbourhood: 2, Values: 400, Value: 16},
		{Len: 300, Hashes: 2, Neighbourhood: 1, Values: 200, Value: 16},
		{Len: 300, Hashes: 1, Neighbourhood: 6, Value: 16, Form: Slots},
		{Len: 5, Hashes: 2, Neighbourhood: 2, Value: 16},
	} {
		table, m := made(t, s)
		table.Wait = func() {}
		model := map[redn.Operand]uint64{}
		rnd := rand.New(rand.NewPCG(1, 1))
		for n := range uint64(50_000) {
			key := redn.Operand(1 + rnd.Uint64N(uint64(s.Len)))
			_, there := model[key]
			switch rnd.IntN(4) {
			case 0, 1:
				err := table.Insert(key, valueOf(key, n))
				if there != errors.Is(err, ErrExists) || !there && err != nil && !errors.Is(err, ErrFull) {
					t.Fatalf("%+v: insert of %d, which is there: %v: %v", s, key, there, err)
				}
				if err == nil {
					model[key] = n
				}
			case 2:
				err := table.Put(key, valueOf(key, n))
				if there == errors.Is(err, ErrNotFound) || there && err != nil && !errors.Is(err, ErrFull) {
					t.Fatalf("%+v: put of %d: %v", s, key, err)
				}
				if err == nil {
					model[key] = n
				}
			case 3:
				if err := table.Delete(key); there == errors.Is(err, ErrNotFound) || there && err != nil {
					t.Fatalf("%+v: delete of %d: %v", s, key, err)
				}
				delete(model, key)
			}
			if rnd.IntN(20) == 0 {
				table.Reclaim()
			}
			version, there := model[key]
			found := lookup(s, m.b, key, func() {})
			if there != (len(found) > 0) || there && !bytes.Equal(found[0], valueOf(key, version)) || table.Keys() != len(model) {
				t.Fatalf("%+v: step %d, key %d: found %x; %d keys of %d", s, n, key, found, table.Keys(), len(model))
			}
		}
		verify(t, table, m)
		for key, version := range model {
			if b, err := table.Get(nil, key); err != nil || !bytes.Equal(b, valueOf(key, version)) {
				t.Errorf("%+v: key %d: %x, %v", s, key, b, err)
			}
		}
		table.Reclaim()
		if len(table.free)+len(model) != s.values() {
			t.Errorf("%+v: %d places are free, %d used, of %d", s, len(table.free), len(model), s.values())
		}
	}
}

// verify checks that each key is in one bucket, one of its own, that the bytes agree with the server's
// view, and that no two buckets have the same value.
func verify(t *testing.T, table *Table, m *plain) {
	t.Helper()
	places := map[uint32]bool{}
	keys := 0
	for n, e := range table.buckets {
		var k [8]byte
		copy(k[:], m.b[n*table.shape.BucketLen():][:redn.OperandLen])
		if got := redn.Operand(binary.LittleEndian.Uint64(k[:])); got != e.key {
			t.Fatalf("bucket %d has key %#x in memory, not %#x", n, got, e.key)
		}
		if e.key == 0 {
			continue
		}
		keys++
		if b, _, _, ok := table.Find(e.key); !ok || b != n || places[e.value] {
			t.Fatalf("key %#x is in bucket %d: %v, %d; its value is another's: %v", e.key, n, ok, b, places[e.value])
		}
		places[e.value] = true
	}
	if keys != table.Keys() {
		t.Fatalf("%d buckets have a key, the table %d", keys, table.Keys())
	}
}

// A million entries fit at a load of 0.75, and lookups on the bytes find all.
func TestMillion(t *testing.T) {
	const n = 1 << 20
	s := Default(n, 16)
	table, m := made(t, s)
	table.Wait = func() {}
	key := func(i int) redn.Operand { return redn.Operand(uint64(i+1) * 0x9e3779b97f4b % (1 << 48)) }
	for i := range n {
		if err := table.Insert(key(i), valueOf(key(i), 1)); err != nil {
			t.Fatalf("entry %d, load %.3f: %v", i, table.Load(), err)
		}
	}
	if table.Load() < 0.74 || table.Hops() == 0 {
		t.Errorf("load %.3f after %d hops", table.Load(), table.Hops())
	}
	verify(t, table, m)
	for i := range n {
		if found := lookup(s, m.b, key(i), func() {}); len(found) == 0 || !bytes.Equal(found[0], valueOf(key(i), 1)) || !bytes.Equal(found[len(found)-1], found[0]) {
			t.Fatalf("entry %d: found %x", i, found)
		}
	}
	t.Logf("%d entries, load %.3f, %d hops", n, table.Load(), table.Hops())
}

// Each shape fills to its load; the insertion that fails changes nothing.
func TestFillToFailure(t *testing.T) {
	for _, c := range []struct {
		hashes, neighbourhood int
		wait                  bool
		load                  float64
	}{{2, 1, true, 0.4}, {2, 2, true, 0.9}, {2, 2, false, 0.6}, {1, 6, false, 0.35}} {
		s := Shape{Len: 1 << 16, Hashes: c.hashes, Neighbourhood: c.neighbourhood, Value: 16}
		table, m := made(t, s)
		if c.wait {
			table.Wait = func() {}
		}
		rnd := rand.New(rand.NewPCG(2, 2))
		for {
			key := redn.Operand(1 + rnd.Uint64N(1<<48-1))
			before := bytes.Clone(m.b[:s.Len/64])
			if err := table.Insert(key, valueOf(key, 1)); errors.Is(err, ErrFull) {
				if found := lookup(s, m.b, key, func() {}); len(found) > 0 || !bytes.Equal(before, m.b[:s.Len/64]) {
					t.Errorf("a key without room is found: %x", found)
				}
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		verify(t, table, m)
		t.Logf("%d hashes, neighbourhood %d: load %.3f, %d hops", c.hashes, c.neighbourhood, table.Load(), table.Hops())
		if table.Load() < c.load {
			t.Errorf("%d hashes, neighbourhood %d: load %.3f, want %.2f", c.hashes, c.neighbourhood, table.Load(), c.load)
		}
	}
}

// A lookup that runs while an insertion moves entries finds its key at each point: every lookup reads its
// first buckets after one copy, and the others after any later one. Table.Wait ends lookups.
func TestLookupsDuringHops(t *testing.T) {
	s := Shape{Len: 64, Hashes: 2, Neighbourhood: 2, Value: 16}
	hopped, waits, checked := 0, 0, 0
	for seed := range uint64(40) {
		table, m := made(t, s)
		rnd := rand.New(rand.NewPCG(seed, 3))
		var keys []redn.Operand
		images := [][]byte{bytes.Clone(m.b)}
		m.then = func() { images = append(images, bytes.Clone(m.b)) }
		check := func() { // all lookups that begin and end since the last call
			for _, k := range keys {
				for first := range images {
					checked += duringCopies(t, s, images[first:], k)
				}
			}
			images = images[len(images)-1:]
		}
		if seed%4 > 0 {
			table.Wait = func() { waits++; check() }
		}
		for {
			key := redn.Operand(1 + rnd.Uint64N(1<<48-1))
			before := table.Hops()
			err := table.Insert(key, valueOf(key, 1))
			if table.Hops() > before {
				hopped++
				check()
			}
			images = images[len(images)-1:]
			if err != nil {
				break
			}
			keys = append(keys, key)
		}
	}
	if hopped < 100 || waits < 10 {
		t.Errorf("only %d insertions hopped, with %d waits", hopped, waits)
	}
	t.Logf("%d insertions that hopped, %d waits, %d lookups", hopped, waits, checked)
}

// duringCopies looks a key up: the first probes in the first image, the others in any image.
func duringCopies(t *testing.T, s Shape, images [][]byte, k redn.Operand) (n int) {
	for then := range images {
		for at := range s.Probes() {
			n++
			seen, probe := bytes.Clone(images[0]), 0
			found := lookup(s, seen, k, func() {
				if probe == at {
					copy(seen, images[then])
				}
				probe++
			})
			if len(found) == 0 || !bytes.Equal(found[0], valueOf(k, 1)) || !bytes.Equal(found[len(found)-1], valueOf(k, 1)) {
				t.Fatalf("key %#x, image %d of %d from probe %d on: %x", k, then, len(images), at, found)
			}
		}
	}
	return n
}

// A lookup that has read a bucket sends the value of its key, although the key is deleted and other keys
// are inserted: their values take no place that it may read. After Reclaim they do.
func TestReclaim(t *testing.T) {
	s := Shape{Len: 8, Hashes: 2, Neighbourhood: 2, Values: 2, Value: 16}
	table, m := made(t, s)
	if err := table.Insert(1, valueOf(1, 1)); err != nil {
		t.Fatal(err)
	}
	_, _, place, _ := table.Find(1)
	if err := errors.Join(table.Put(1, valueOf(1, 2)), table.Delete(1)); err != nil {
		t.Fatal(err)
	}
	if err := table.Insert(2, valueOf(2, 1)); !errors.Is(err, ErrFull) {
		t.Errorf("a value takes a place that a lookup may read: %v", err)
	}
	if got := m.b[s.ValueAt(place):][:16]; !bytes.Equal(got, valueOf(1, 1)) {
		t.Errorf("the value that a lookup sends has changed: %x", got)
	}
	table.Reclaim()
	if err := errors.Join(table.Insert(2, valueOf(2, 1)), table.Insert(3, valueOf(3, 1))); err != nil {
		t.Error(err)
	}
}

// Keys and values that no bucket can have are refused.
func TestRefused(t *testing.T) {
	table, _ := made(t, Shape{Len: 8, Hashes: 2, Neighbourhood: 2, Value: 16})
	for _, key := range []redn.Operand{0, 1 << 48} {
		if err := table.Insert(key, valueOf(key, 1)); !errors.Is(err, ErrKey) {
			t.Errorf("key %#x: %v", key, err)
		}
	}
	if err := table.Insert(1, []byte{1}); !errors.Is(err, ErrValue) {
		t.Errorf("a short value: %v", err)
	}
	for _, s := range []Shape{{}, {Len: 1, Hashes: 1, Neighbourhood: 2, Value: 1}, {Len: 8, Hashes: 1, Neighbourhood: 1}, {Len: 8, Hashes: 1, Neighbourhood: 1, Value: 1, Form: 2}} {
		if _, err := New(s, nil, redn.Mem{}); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}

// The bytes of buckets and requests, and the hash, are these: clients of another version find keys.
func TestBytes(t *testing.T) {
	const key = 0x0102030405a6
	for form, want := range map[Form]string{
		Pointers: "a60504030201" + "0000000100000440" + "0000",
		Slots:    "a60504030201" + "00000001" + "00000010" + "00000007" + "0000000100000880" + "000000000000",
	} {
		s := Shape{Len: 67, Hashes: 2, Neighbourhood: 2, Value: 16, Form: form}
		table, m := made(t, s)
		if err := table.Insert(key, valueOf(key, 1)); err != nil {
			t.Fatal(err)
		}
		b, _, _, _ := table.Find(key)
		if got := hex.EncodeToString(m.b[b*s.BucketLen():][:s.BucketLen()]); got != want {
			t.Errorf("form %d: %s, want %s", form, got, want)
		}
	}
	// SplitMix64 with seed 0 begins with 0xe220a8397b1dcdaf (Steele, Lea and Flood, 2014).
	if got := mix(0x9e3779b97f4a7c15); got != 0xe220a8397b1dcdaf {
		t.Errorf("mix is %#x", got)
	}
	s := Shape{Len: 1001, Hashes: 2, Neighbourhood: 2, Value: 16}
	const request = "0102030405a600000001000012b0" + "0102030405a600000001000012c0" + "0102030405a60000000100002850" + "0102030405a60000000100002860"
	if got := hex.EncodeToString(s.AppendRequest(nil, key, base)); got != request {
		t.Errorf("request %s, want %s", got, request)
	}
}
