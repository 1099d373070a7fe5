package framering

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// keptBytes is how much of an entry a large keeps: its header, and the four bytes of a test's frame.
const keptBytes = HeaderLen + 4

// large is a server with more memory than a test has: it keeps the begin of each entry.
type large struct {
	t     *testing.T
	area  extmem.Area
	kept  [][keptBytes]byte
	reads []Entry
	from  []uint64 // offsets of the READs
	far   uint64   // the highest offset of a WRITE
}

func (k *large) Up() bool      { return true }
func (k *large) Writes() int   { return 1 << 20 }
func (k *large) Reads() bool   { return true }
func (k *large) Nonce() uint32 { return 6 }
func (k *large) Longest() int  { return 4096 }

func (k *large) entry(offset uint64) *[keptBytes]byte {
	at := offset - k.area.Offset
	if offset < k.area.Offset || at%uint64(k.area.Size) != 0 || at/uint64(k.area.Size) >= uint64(len(k.kept)) {
		k.t.Fatalf("offset %#x of the ring %+v", offset, k.area)
	}
	return &k.kept[at/uint64(k.area.Size)]
}

func (k *large) Write(_ *pipeline.Ctx, offset uint64, b []byte) {
	copy(k.entry(offset)[:], b)
	k.far = max(k.far, offset)
}

func (k *large) Read(_ *pipeline.Ctx, offset uint64, n int, e Entry) {
	if n != k.area.Size {
		k.t.Fatalf("a READ of %d bytes", n)
	}
	k.reads, k.from = append(k.reads, e), append(k.from, offset)
}

// A ring of 10 GB takes as many frames as it has entries and none more, and all come back in their
// order; those of the next lap are in the same places.
func TestTenGigabytes(t *testing.T) {
	area := extmem.Area{Servers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Offset: 4096, Cells: 10_000_000_000 / 4096, Size: 4096}
	k := &large{t: t, area: area, kept: make([][keptBytes]byte, area.Cells)}
	sw, err := pipeline.New(pipeline.Config{Ports: 1, Program: noProgram{}})
	if err != nil {
		t.Fatal(err)
	}
	ring := New(Config{Layout: area, Carriers: []Carrier{k}, Window: 64})
	stored, taken := uint32(0), uint32(0)
	step := func(f func(c *pipeline.Ctx)) {
		var out packetio.Batch
		sw.Step(1, &out, f)
	}
	store := func(n int) (last Outcome) {
		step(func(c *pipeline.Ctx) {
			for range n {
				if last = ring.Store(c, packetio.Frame{Data: binary.BigEndian.AppendUint32(nil, stored)}); last != Stored {
					return
				}
				stored++
			}
		})
		return last
	}
	take := func(n uint32) {
		for end := taken + n; taken < end; {
			step(ring.Ask)
			step(func(*pipeline.Ctx) {
				for i, e := range k.reads {
					ring.Came(e, k.entry(k.from[i])[:])
				}
			})
			if k.reads, k.from = k.reads[:0], k.from[:0]; ring.Empty() {
				t.Fatalf("%d frames came back of %d", taken, end)
			}
			for {
				f, number, ok := ring.Next()
				if !ok {
					break
				}
				if number != taken || binary.BigEndian.Uint32(f.Data) != taken || ring.Count(number) != 0 {
					t.Fatalf("frame %d comes back as %x, frame %d is next", number, f.Data, taken)
				}
				taken++
			}
		}
	}
	for int(stored) < area.Cells {
		if got := store(min(1000, area.Cells-int(stored))); got != Stored {
			t.Fatalf("frame %d: outcome %d", stored, got)
		}
	}
	if want := area.End() - 4096; store(1) != Full || ring.Used() != area.Cells || k.far != want || want < 9_900_000_000 {
		t.Errorf("%d of %d entries in use, the last at %#x, want %#x", ring.Used(), area.Cells, k.far, want)
	}
	const more = 5000
	take(more)
	if got := store(more); got != Stored {
		t.Errorf("the second lap: outcome %d", got)
	}
	take(stored - taken)
	if !ring.Empty() || ring.End() != 0 || int(taken) != area.Cells+more {
		t.Errorf("%d frames came back of %d", taken, area.Cells+more)
	}
}
