package nic

import (
	"encoding/binary"
	"flag"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// BenchmarkRead is a READ of 4096 bytes from Issue to Poll, both NICs and no link.
func BenchmarkRead(b *testing.B) { benchmark(b, onerma.Read, 4096) }

// BenchmarkWrite is a WRITE of 4096 bytes.
func BenchmarkWrite(b *testing.B) { benchmark(b, onerma.Write, 4096) }

// BenchmarkRead64 is a READ of 64 bytes.
func BenchmarkRead64(b *testing.B) { benchmark(b, onerma.Read, 64) }

func benchmark(b *testing.B, op onerma.Op, n int) {
	w := newWorld(b, 2, nil)
	p := w.portal(0, 7, 1)
	c := w.command(op, 7, 0, n)
	b.ReportAllocs()
	b.SetBytes(int64(n))
	var x exchange
	for b.Loop() {
		if s := x.run(w, p, c); s != OK {
			b.Fatal(s)
		}
	}
}

// exchange carries frames between two NICs at once.
type exchange struct {
	out  [2]packetio.Batch
	done [1]Completion
	last *[2]uint64 // counters of the last messages, if they are checked
}

// check checks the counter of a message, which is behind 42 bytes of other headers.
func (x *exchange) check(w *world, from int, frame []byte) {
	if x.last == nil {
		return
	}
	counter := binary.BigEndian.Uint64(frame[42+32:])
	if counter <= x.last[from] {
		w.t.Fatalf("counter %#x after %#x", counter, x.last[from])
	}
	x.last[from] = counter
}

func (x *exchange) run(w *world, p *Portal, c *Command) Status {
	if err := p.Issue(w.now, c); err != nil {
		w.t.Fatal(err)
	}
	w.nics[0].Tick(w.now, &x.out[0])
	for from := 0; len(x.out[from].Frames) > 0; from = 1 - from {
		for _, f := range x.out[from].Frames {
			x.check(w, from, f.Data)
			w.nics[1-from].Frame(w.now, 0, f, &x.out[1-from])
		}
		x.out[from].Reset()
	}
	if p.Poll(x.done[:]) == 0 {
		w.t.Fatal("no completion")
	}
	return x.done[0].Status
}

// An operation allocates no memory on either NIC.
func TestOperationsDoNotAllocate(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 1)
	var x exchange
	for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
		c := w.command(op, 7, 0, 4096)
		if got := testing.AllocsPerRun(100, func() { x.run(w, p, c) }); got != 0 {
			t.Errorf("%v: %v allocations an operation", op, got)
		}
	}
}

// operations is the number of operations of TestVectorsNeverRepeat. Ten million take some
// minutes.
var operations = flag.Int("operations", 20_000, "operations of TestVectorsNeverRepeat")

// Each message of a NIC has a larger counter than all before it, over many operations and crashes, so
// that no vector repeats.
func TestVectorsNeverRepeat(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 1)
	c := [2]*Command{w.command(onerma.Read, 7, 0, 64), w.command(onerma.Write, 7, 0, 64)}
	x := exchange{last: new([2]uint64)}
	for i := range *operations {
		if i%(*operations/4) == *operations/8 {
			w.restart(0, uint32(1+i/(*operations/4)))
			p = w.portal(0, 7, 1)
			c[0].Local, c[1].Local = w.regions[0], w.regions[0]
		}
		if s := x.run(w, p, c[i%2]); s != OK {
			t.Fatal(s)
		}
	}
}

// restart crashes a NIC and starts it with an epoch.
func (w *world) restart(i int, epoch uint32) {
	w.t.Helper()
	c := configOf(i)
	c.Epoch = epoch
	n, err := New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.nics[i].Down()
	w.nics[i] = n
	if w.regions[i], err = n.Register(w.regions[i].mem); err != nil {
		w.t.Fatal(err)
	}
}
