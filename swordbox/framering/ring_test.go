package framering

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// noProgram is a program of a switch that is only needed for its steps.
type noProgram struct{}

func (noProgram) Spec() pipeline.Spec                                     { return pipeline.Spec{} }
func (noProgram) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (noProgram) Tick(*pipeline.Ctx)                                      {}
func (noProgram) Deadline() clock.Time                                    { return clock.Never }

// memory is the memory of a server, and the READs that it has not answered.
type memory struct {
	t      *testing.T
	area   extmem.Area
	bytes  []byte
	up     bool
	writes int // WRITEs that it takes now
	reads  []Entry
	size   map[Entry]int // bytes of each READ
	parts  int           // entries that it was sent
	// wrote has the length of the WRITE to each offset, if READs are exact; otherwise it is nil.
	wrote map[uint64]int
	most  int // READs that may be in flight
	long  int // bytes of a request
	nonce uint32
	deaf  bool // WRITEs are lost
}

func (k *memory) Up() bool { return k.up }

func (k *memory) Writes() int {
	if !k.up {
		return 0
	}
	return k.writes
}

func (k *memory) Reads() bool   { return k.up && len(k.reads) < k.most }
func (k *memory) Nonce() uint32 { return k.nonce }
func (k *memory) Longest() int  { return k.long }

func (k *memory) Write(_ *pipeline.Ctx, offset uint64, b []byte) {
	if offset < k.area.Offset || offset+uint64(len(b)) > k.area.End() || len(b) > max(k.long, k.area.Size) || (offset-k.area.Offset)%uint64(k.area.Size) != 0 {
		k.t.Fatalf("a WRITE of %d bytes at %d, the ring is %+v", len(b), offset, k.area)
	}
	if k.Writes() == 0 {
		k.t.Fatal("a WRITE to a server that takes none")
	}
	if k.writes--; !k.deaf {
		copy(k.bytes[offset:], b)
	}
	for ; len(b) > 0; b = b[min(k.area.Size, len(b)):] {
		if k.parts++; k.wrote != nil {
			k.wrote[offset] = min(len(b), k.area.Size)
			offset += uint64(k.area.Size)
		}
	}
}

func (k *memory) Read(_ *pipeline.Ctx, offset uint64, n int, e Entry) {
	size := k.area.Size
	if k.wrote != nil {
		size = max(HeaderLen, k.wrote[offset])
	}
	if want := uint64(e.Place) % uint64(k.area.Cells) / uint64(len(k.area.Servers)); offset != k.area.Offset+want*uint64(k.area.Size) || n != size && n != HeaderLen &&
		(k.wrote != nil || n%size != 0 || n > k.long || offset+uint64(n) > k.area.End()) {
		k.t.Fatalf("a READ of %d bytes at %d for entry %d", n, offset, e.Place)
	}
	k.reads = append(k.reads, e)
	if k.size == nil {
		k.size = make(map[Entry]int)
	}
	k.size[e] = n
}

// bed is a ring with its servers, and what was stored in it.
type bed struct {
	t       *testing.T
	sw      *pipeline.Switch
	r       *rand.Rand
	ring    Ring
	servers []*memory
	room    int // bytes of a frame in an entry
	stored  map[uint32]packetio.Frame
	whole   map[uint32]bool // frames of which each part was written
	got     []uint32
	lost    uint32
}

func newBed(t *testing.T, r *rand.Rand, servers, cells, room, window int, trusting bool) *bed {
	t.Helper()
	b := &bed{t: t, r: r, room: room, stored: map[uint32]packetio.Frame{}, whole: map[uint32]bool{}}
	var err error
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 1, Program: noProgram{}}); err != nil {
		t.Fatal(err)
	}
	area := extmem.Area{Servers: make([]netip.Addr, servers), Offset: 64, Cells: cells, Size: HeaderLen + room}
	cfg := Config{Layout: area, Trusting: trusting, Epoch: 3, Window: window}
	for i := range servers {
		k := &memory{t: t, area: area, bytes: make([]byte, area.End()), up: true, writes: 1 << 20, most: 4, nonce: uint32(0x1000 * (i + 1))}
		for at := range k.bytes {
			k.bytes[at] = byte(r.Uint32()) // what a former user has left
		}
		b.servers, cfg.Carriers = append(b.servers, k), append(cfg.Carriers, k)
	}
	b.ring = New(cfg)
	return b
}

// exact makes the READs of an empty ring exact.
func (b *bed) exact() {
	b.ring.cfg.Exact = true
	b.ring = New(b.ring.cfg)
	for _, k := range b.servers {
		k.wrote = make(map[uint64]int)
	}
}

// share lets a request have up to n entries.
func (b *bed) share(n int) {
	for _, k := range b.servers {
		k.long = n*k.area.Size + n/2 // more bytes than the entries need
	}
}

// step runs f in a step of the switch, and checks the bounds of the ring.
func (b *bed) step(f func(c *pipeline.Ctx)) {
	b.t.Helper()
	var out packetio.Batch
	b.sw.Step(1, &out, f)
	r, pending := &b.ring, 0
	for _, k := range b.servers {
		pending += len(k.reads)
	}
	if r.Used() > r.cfg.Layout.Cells || r.Used() != int(r.Written()-r.Read()) || pending > r.Window() || r.Empty() != (r.Used() == 0) {
		b.t.Fatalf("%d of %d entries in use, positions %d to %d, %d READs of %d", r.Used(), r.cfg.Layout.Cells, r.Read(), r.Written(), pending, r.Window())
	}
	if n := uint32(len(b.stored)-len(b.got)) - b.lost; r.Remote() != n {
		b.t.Fatalf("%d frames are in the ring, want %d", r.Remote(), n)
	}
}

// store stores a frame of n bytes and checks the outcome.
func (b *bed) store(n int) Outcome {
	b.t.Helper()
	f := packetio.Frame{Data: make([]byte, n), SegSize: n, CsumStart: uint16(n)}
	for i := range f.Data {
		f.Data[i] = byte(b.r.Uint32())
	}
	parts, used, cells, takes := (n+b.room-1)/b.room, b.ring.Used(), b.ring.cfg.Layout.Cells, 0
	for _, k := range b.servers {
		takes += k.Writes()
	}
	want := Stored
	switch {
	case parts > 256 || parts > cells:
		want = Long
	case used+parts > cells:
		want = Full
	case takes < parts:
		want = Blocked
	}
	var got Outcome
	number, before := b.ring.Newest()+1, b.parts()
	b.step(func(c *pipeline.Ctx) {
		if got = b.ring.Store(c, f); got == Stored {
			b.stored[number] = f
		}
	})
	if got == Stored {
		b.whole[number] = b.parts()-before == parts
	}
	// Servers that take no WRITE are skipped, which may leave no place for the first part.
	skipped := want == Stored && got == Full && b.skips()
	if got != want && !skipped || got == Stored && b.ring.Newest() != number {
		b.t.Fatalf("a frame of %d parts, %d of %d entries in use, room for %d WRITEs: outcome %d, want %d", parts, used, cells, takes, got, want)
	}
	return got
}

// parts returns how many entries were written.
func (b *bed) parts() (n int) {
	for _, k := range b.servers {
		n += k.parts
	}
	return n
}

func (b *bed) skips() bool {
	for _, k := range b.servers {
		if k.Writes() == 0 {
			return true
		}
	}
	return false
}

// answer answers a READ of a server: with the bytes, with none, or with damaged ones.
func (b *bed) answer(k *memory, i int, damage bool) {
	e := k.reads[i]
	k.reads = append(k.reads[:i:i], k.reads[i+1:]...)
	_, offset := b.ring.cfg.Layout.Place(uint64(e.Place))
	data := bytes.Clone(k.bytes[offset:][:k.size[e]])
	if damage {
		if b.r.IntN(2) == 0 {
			data = nil
		} else {
			at := b.r.IntN(max(1, len(data)/k.area.Size)) * k.area.Size
			data[at+b.r.IntN(12)] ^= byte(1 + b.r.IntN(255)) // tag, place or number
		}
	}
	b.step(func(*pipeline.Ctx) {
		b.ring.Came(Entry{e.Ring + 1, e.Place}, make([]byte, 8)) // of another ring
		b.ring.Came(Entry{e.Ring, e.Place + uint32(b.ring.Window())}, nil)
		b.ring.Came(e, data)
		b.ring.Came(e, nil) // a second answer
		if k.size[e] > k.area.Size {
			b.ring.Came(Entry{e.Ring, e.Place + 1}, nil) // no READ begins with this entry
		}
	})
}

// take takes the frames that have come back.
func (b *bed) take() {
	b.t.Helper()
	b.step(func(*pipeline.Ctx) {
		for {
			f, number, ok := b.ring.Next()
			if !ok {
				break
			}
			want, known := b.stored[number]
			if !known || !bytes.Equal(f.Data, want.Data) || f.SegSize != want.SegSize || f.CsumStart != want.CsumStart {
				b.t.Fatalf("frame %d comes back with %d bytes, want %d", number, len(f.Data), len(want.Data))
			}
			if n := len(b.got); n > 0 && number <= b.got[n-1] {
				b.t.Fatalf("frame %d comes back after %d", number, b.got[n-1])
			}
			b.lost += b.ring.Count(number)
			b.got = append(b.got, number)
		}
		if b.ring.Empty() {
			b.lost += b.ring.End()
		}
	})
}

// drain lets all servers answer until the ring is empty.
func (b *bed) drain() {
	b.t.Helper()
	for range 10_000 {
		if b.take(); b.ring.Empty() {
			return
		}
		b.step(b.ring.Ask)
		for _, k := range b.servers {
			if len(k.reads) > 0 {
				b.answer(k, 0, false)
			}
		}
	}
	b.t.Fatal("the ring does not become empty")
}

// Frames of any length come back whole and in their order, over several turns of the ring, in
// whatever order servers answer. Without faults none is lost.
func TestFramesComeBackInOrder(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 61))
			cells, room := 1+r.IntN(12), 1+r.IntN(40)
			b := newBed(t, r, 1+r.IntN(3), cells, room, 1+r.IntN(6), false)
			if seed%3 == 0 {
				b.exact()
			}
			b.share(r.IntN(5))
			for range 300 {
				switch k := b.servers[r.IntN(len(b.servers))]; r.IntN(5) {
				case 0, 1:
					b.store(1 + r.IntN(3*room))
				case 2:
					b.step(b.ring.Ask)
				case 3:
					if len(k.reads) > 0 {
						b.answer(k, r.IntN(len(k.reads)), false)
					}
				default:
					b.take()
				}
			}
			b.drain()
			if len(b.stored) < 10 || len(b.got) != len(b.stored) || b.lost != 0 {
				t.Errorf("%d of %d frames came back, %d are lost", len(b.got), len(b.stored), b.lost)
			}
		})
	}
}

// Servers go and come, take no WRITE at times, and give no answer or another one. What comes back is
// right, in order, and what does not is counted. A frame is not lost of which each part was written
// and came back undamaged.
func TestLostEntriesAreCounted(t *testing.T) {
	lost, undamaged := uint32(0), 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 62))
			cells, room := 2+r.IntN(16), 1+r.IntN(40)
			b := newBed(t, r, 1+r.IntN(3), cells, room, 1+r.IntN(6), false)
			if seed%3 == 0 {
				b.exact()
			}
			b.share(r.IntN(5))
			damaged, downs := false, seed%2 == 0
			for range 300 {
				switch k := b.servers[r.IntN(len(b.servers))]; r.IntN(8) {
				case 0, 1, 2:
					b.store(1 + r.IntN(3*room))
				case 3:
					b.step(b.ring.Ask)
				case 4, 5:
					if len(k.reads) > 0 {
						hit := downs && r.IntN(8) == 0
						damaged = damaged || hit
						b.answer(k, r.IntN(len(k.reads)), hit)
					}
				case 6:
					k.writes = []int{0, 1, 1 << 20}[r.IntN(3)]
					if downs && r.IntN(3) == 0 {
						if k.up = !k.up; !k.up { // its connection has ended
							damaged = true
							for len(k.reads) > 0 {
								e := k.reads[0]
								k.reads = k.reads[1:]
								b.step(func(*pipeline.Ctx) { b.ring.Came(e, nil) })
							}
						}
					}
				default:
					b.take()
				}
			}
			for _, k := range b.servers {
				k.up = true
			}
			b.drain()
			if int(b.lost)+len(b.got) != len(b.stored) {
				t.Errorf("%d frames stored, %d came back, %d are lost", len(b.stored), len(b.got), b.lost)
			}
			if !damaged {
				whole := 0
				for _, is := range b.whole {
					if is {
						whole++
					}
				}
				if undamaged += whole; len(b.got) != whole {
					t.Errorf("%d frames came back, %d were written whole", len(b.got), whole)
				}
			}
			lost += b.lost
		})
	}
	if lost < 20 || undamaged < 200 {
		t.Errorf("%d frames were lost, %d had to come back: the test shows little", lost, undamaged)
	}
}

// A frame may have as many parts as the ring has entries, and at most 256, and none more.
func TestLongestFrame(t *testing.T) {
	for _, c := range []struct{ cells, parts int }{{3, 3}, {300, 256}} {
		b := newBed(t, rand.New(rand.NewPCG(1, 63)), 2, c.cells, 10, 4, false)
		if got := b.store(10*c.parts + 1); got != Long || !b.ring.Empty() {
			t.Errorf("%d entries: a frame of %d parts: outcome %d", c.cells, c.parts+1, got)
		}
		if got := b.store(10 * c.parts); got != Stored || b.ring.Used() != c.parts {
			t.Errorf("%d entries: a frame of %d parts: outcome %d, %d entries", c.cells, c.parts, got, b.ring.Used())
		}
		if b.drain(); len(b.got) != 1 {
			t.Errorf("%d entries: it does not come back", c.cells)
		}
	}
}

// AskUntil asks for the entries before a position, and says whether it has asked for all of them. A
// server without a connection is not asked, and its entries are missing at once.
func TestAskUntil(t *testing.T) {
	b := newBed(t, rand.New(rand.NewPCG(1, 64)), 2, 16, 10, 4, false)
	for range 8 {
		b.store(10)
	}
	ask := func(end uint64) (all bool) {
		b.step(func(c *pipeline.Ctx) { all = b.ring.AskUntil(c, end) })
		return all
	}
	asked := func() int { return len(b.servers[0].reads) + len(b.servers[1].reads) }
	if !ask(0) || asked() != 0 {
		t.Errorf("%d entries before the first are asked for", asked())
	}
	if !ask(2) || asked() != 2 || !ask(1) || asked() != 2 {
		t.Errorf("%d entries are asked for, want 2", asked())
	}
	if ask(8) || asked() != 4 {
		t.Errorf("%d entries are asked for, 4 may be", asked())
	}
	b.servers[1].up = false
	for _, e := range b.servers[1].reads {
		b.step(func(*pipeline.Ctx) { b.ring.Came(e, nil) })
	}
	b.servers[1].reads = nil
	b.answer(b.servers[0], 0, false)
	b.answer(b.servers[0], 0, false)
	b.take()
	b.servers[0].most = 1
	if ask(8) || asked() != 1 {
		t.Errorf("%d entries are asked for, the server takes 1 READ", asked())
	}
	b.answer(b.servers[0], 0, false)
	if b.take(); len(b.got) != 3 || b.lost != 2 {
		t.Errorf("%v came back, %d are lost, one after the other", b.got, b.lost)
	}
	if !ask(8) || asked() != 1 {
		t.Errorf("%d entries are asked for, want the last of the server that is up", asked())
	}
	b.answer(b.servers[0], 0, false)
	if b.take(); len(b.got) != 4 || b.lost != 4 || !b.ring.Empty() {
		t.Errorf("%v came back, %d are lost", b.got, b.lost)
	}
}

// If servers take no WRITE, their entries are skipped. A frame that then has no place for its first
// part is not stored; one without a place for another part does not come back.
func TestSkippedEntries(t *testing.T) {
	b := newBed(t, rand.New(rand.NewPCG(1, 66)), 3, 3, 10, 4, false)
	b.store(10)
	b.store(10)
	b.servers[2].writes = 0
	if got := b.store(10); got != Full || b.ring.Used() != 2 || b.ring.Newest() != 1 {
		t.Errorf("no place for the first part: outcome %d, %d entries, newest frame %d", got, b.ring.Used(), b.ring.Newest())
	}
	b.drain()
	b.servers[0].writes, b.servers[1].writes = 1, 0 // the next entry is of server 2
	b.servers[2].writes = 1
	b.store(10)
	b.servers[0].writes, b.servers[1].writes, b.servers[2].writes = 1, 0, 1
	if got := b.store(20); got != Stored {
		t.Errorf("two parts and two servers: outcome %d", got)
	}
	for _, k := range b.servers {
		k.writes = 1 << 20
	}
	if b.drain(); len(b.got) != 3 || b.lost != 1 {
		t.Errorf("%v came back, %d are lost", b.got, b.lost)
	}
}

// Entries that another ring has left in the memory, or the same one in its former turn, and such that
// no ring wrote, are not taken for those that were stored but did not arrive.
func TestStaleEntries(t *testing.T) {
	for name, c := range map[string]struct {
		former func(k *memory, cfg *Config) // how the former ring differs
		turn   bool                         // the former entries are of the same ring
	}{
		"other connection": {former: func(k *memory, _ *Config) { k.nonce ^= 0x10 }},
		"other epoch":      {former: func(_ *memory, cfg *Config) { cfg.Epoch++ }},
		"256th next epoch": {former: func(_ *memory, cfg *Config) { cfg.Epoch += 256 }},
		"former turn":      {turn: true},
	} {
		b := newBed(t, rand.New(rand.NewPCG(1, 67)), 1, 4, 10, 4, false)
		k, cfg := b.servers[0], b.ring.cfg
		if c.former != nil {
			c.former(k, &cfg)
			b.ring = New(cfg)
		}
		for range 4 {
			b.store(10)
		}
		if c.turn {
			b.drain()
		} else {
			fresh := newBed(t, b.r, 1, 4, 10, 4, false)
			copy(fresh.servers[0].bytes, k.bytes)
			b, k = fresh, fresh.servers[0]
		}
		came := len(b.got)
		k.deaf = true
		for range 4 {
			b.store(10)
		}
		if b.drain(); len(b.got) != came || b.lost != 4 {
			t.Errorf("%s: %v came back, %d are lost", name, b.got, b.lost)
		}
	}
	b := newBed(t, rand.New(rand.NewPCG(1, 68)), 1, 4, 10, 4, false)
	b.store(10)
	b.servers[0].bytes[64+11]++ // the number of the next frame, which was not stored yet
	if b.drain(); len(b.got) != 0 || b.lost != 1 {
		t.Errorf("%v came back, %d are lost", b.got, b.lost)
	}
}

// A trusting ring takes any entry with a valid header, counts each as the frame that it expects, and
// knows of no lost ones before the end.
func TestTrustingRing(t *testing.T) {
	b := newBed(t, rand.New(rand.NewPCG(1, 65)), 1, 8, 10, 1, true)
	for range 3 {
		b.store(10)
	}
	k := b.servers[0]
	for i := range 3 {
		b.step(b.ring.Ask)
		if len(k.reads) != 1 {
			t.Fatalf("%d READs", len(k.reads))
		}
		_, offset := b.ring.cfg.Layout.Place(uint64(i))
		if i == 1 {
			copy(k.bytes[offset:], k.bytes[64:][:k.area.Size]) // the first entry again
		}
		e := k.reads[0]
		k.reads = nil
		b.ring.Came(e, k.bytes[offset:][:k.area.Size])
		_, number, ok := b.ring.Next()
		if want := []uint32{0, 0, 2}[i]; !ok || number != want {
			t.Errorf("entry %d: frame %d, %v, want %d", i, number, ok, want)
		}
		if lost := b.ring.Count(number); lost != 0 || b.ring.Remote() != uint32(2-i) {
			t.Errorf("entry %d: %d are lost, %d in the ring", i, lost, b.ring.Remote())
		}
		b.got = append(b.got, number)
	}
	if b.ring.Count(9) != 0 || b.ring.Remote() != 0 || b.ring.End() != 0 {
		t.Errorf("%d frames are in the empty ring", b.ring.Remote())
	}
}

// An entry that is too short for a header, empty, shorter than it says, or with a part behind the
// last one is no entry.
func TestEntriesThatAreNone(t *testing.T) {
	good := header{tag: 1, length: 8, part: 2, last: 2}
	for name, c := range map[string]struct {
		h    header
		body int
		ok   bool
	}{
		"as it is":              {good, 8, true},
		"with more behind":      {good, 20, true},
		"one byte short":        {good, 7, false},
		"of one byte":           {header{length: 1}, 1, true},
		"empty":                 {header{}, 8, false},
		"part behind the last":  {header{length: 8, part: 3, last: 2}, 8, false},
		"part before the last":  {header{length: 8, part: 1, last: 2}, 8, true},
		"header without a body": {good, 0, false},
	} {
		var h header
		body, ok := h.parse(append(c.h.appendTo(nil), make([]byte, c.body)...))
		if ok != c.ok || ok && len(body) != int(c.h.length) {
			t.Errorf("%s: %v, %d bytes", name, ok, len(body))
		}
	}
	var h header
	if _, ok := h.parse(good.appendTo(nil)[:HeaderLen-1]); ok {
		t.Error("a header that is cut off is one")
	}
	for _, want := range []header{{}, {meta: packetio.Frame{CsumPartial: true}}, {meta: packetio.Frame{Offload: packetio.Offload{Type: 1}}}} {
		want.length = 1
		if _, ok := h.parse(append(want.appendTo(nil), 0)); !ok || !reflect.DeepEqual(h, want) {
			t.Errorf("%+v, want %+v", h, want)
		}
	}
	// The picture of the header says where its numbers are.
	h = header{tag: 0x01020304, place: 0x05060708, number: 0x090a0b0c, length: 0x0d0e, part: 0x0f, last: 0x10, meta: packetio.Frame{
		SegSize: 0x1112, CsumStart: 0x1314, CsumOffset: 0x1516, CsumPartial: true, Offload: packetio.Offload{Type: 0x18, HdrLen: 0x191a, Size: 0x1b1c},
	}}
	want := []byte{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 1, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0, 0, 0, 0,
	}
	if got := h.appendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

// The parts of a frame share WRITEs, as many as a request may have. Entries share READs. A request
// ends where the ring begins again. On several servers, and for a carrier of one entry, each has its
// own.
func TestEntriesShareRequests(t *testing.T) {
	for name, c := range map[string]struct {
		servers, share, writes, reads int
	}{
		"three a request": {1, 3, 4, 4}, // entries 8 9 | 10 11 0 | 1 2 3 | 4
		"one":             {1, 1, 9, 9},
		"several servers": {2, 3, 9, 9},
	} {
		b := newBed(t, rand.New(rand.NewPCG(1, 70)), c.servers, 12, 10, 12, false)
		b.share(c.share)
		for _, k := range b.servers {
			k.most = 12
		}
		b.store(80)
		b.drain()
		takes := 0
		for _, k := range b.servers {
			takes += k.writes
		}
		b.store(85)
		for _, k := range b.servers {
			takes -= k.writes
		}
		if takes != c.writes {
			t.Errorf("%s: %d WRITEs of 9 entries, want %d", name, takes, c.writes)
		}
		b.step(b.ring.Ask)
		reads := 0
		for _, k := range b.servers {
			reads += len(k.reads)
		}
		if reads != c.reads {
			t.Errorf("%s: %d READs of 9 entries, want %d", name, reads, c.reads)
		}
		if b.drain(); len(b.got) != 2 || b.lost != 0 {
			t.Errorf("%s: %v came back, %d are lost", name, b.got, b.lost)
		}
	}
}

// A READ waits for room for all the entries that it can have, unless none is asked for.
func TestReadsStayLong(t *testing.T) {
	b := newBed(t, rand.New(rand.NewPCG(1, 71)), 1, 64, 10, 7, false)
	b.share(3)
	k := b.servers[0]
	for range 20 {
		b.store(10)
	}
	b.step(b.ring.Ask)
	if len(k.reads) != 2 {
		t.Fatalf("%d READs of three entries, 7 may be asked for", len(k.reads))
	}
	for len(k.reads) > 0 {
		if n := k.size[k.reads[0]] / k.area.Size; n != min(3, 20-int(k.reads[0].Place)) {
			t.Errorf("a READ of %d entries from %d on", n, k.reads[0].Place)
		}
		b.answer(k, 0, false)
		b.take()
		b.step(b.ring.Ask)
	}
	if len(b.got) != 20 {
		t.Errorf("%v came back", b.got)
	}
	b = newBed(t, b.r, 1, 64, 10, 2, false) // a window of less than a request
	b.share(3)
	for range 4 {
		b.store(10)
	}
	if b.drain(); len(b.got) != 4 {
		t.Errorf("%v came back", b.got)
	}
}
