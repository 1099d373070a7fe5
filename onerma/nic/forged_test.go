package nic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// READs of any lengths, whose data arrives in any order, more than once, and between forged messages
// of any place and length: no message changes a byte that it must not change.
func TestForgedDataAmongReads(t *testing.T) {
	for seed := range uint64(30) {
		if err := newForger(t, seed).run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// forger delivers the data of READs of NIC 0, with forged messages between.
type forger struct {
	*world
	r      *rand.Rand
	portal *Portal
	data   [][]byte // the data messages of all READs
	// owed says which bytes of the memory of NIC 0 a READ in progress waits for. from is where their
	// values are in the memory of NIC 1.
	owed map[int]bool
	from map[int]int
	end  int // behind the bytes of the last READ
}

func newForger(t *testing.T, seed uint64) *forger {
	x := &forger{r: rand.New(rand.NewPCG(seed, 77)), owed: map[int]bool{}, from: map[int]int{}}
	x.world = newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = []int{200, 700, 1500, 4200}[x.r.IntN(4)] })
	x.filter = func(f *onerma.Frame, b []byte) ([]byte, time.Duration) {
		if f.Kind != onerma.Data {
			return b, 0
		}
		x.data = append(x.data, b)
		return nil, 0
	}
	x.portal = x.world.portal(0, 7, 8)
	at := x.r.IntN(100)
	for range 1 + x.r.IntN(6) {
		n, from := 1+x.r.IntN(onerma.MaxOp), x.r.IntN(60_000)
		if x.r.IntN(2) == 0 {
			n = 16 * (1 + x.r.IntN(onerma.MaxOp/16)) // data of whole blocks is decrypted into the memory
		}
		c := x.command(onerma.Read, 7, uint64(from), n)
		c.LocalOffset, c.Tag = uint64(at), uint64(at)
		x.issue(x.portal, c)
		for i := range n {
			x.owed[at+i], x.from[at+i] = true, from+i
		}
		at += n + x.r.IntN(40)
	}
	x.end = at
	x.world.run(x.now.Add(rtt))
	return x
}

func (x *forger) run() error {
	todo := slices.Clone(x.data)
	x.r.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	for len(todo) > 0 {
		b, forged := x.data[x.r.IntN(len(x.data))], false
		switch x.r.IntN(4) {
		case 0:
			b, todo = todo[0], todo[1:]
		case 1: // data that may have landed
		default:
			b, forged = x.forge(b), true
		}
		if err := x.deliver(b, forged); err != nil {
			return err
		}
	}
	var done [8]Completion
	for _, c := range done[:x.portal.Poll(done[:])] {
		x.want(c, OK)
	}
	if len(x.owed) > 0 || x.portal.Free() != 8 {
		return fmt.Errorf("%d bytes have not arrived, %d slots are free", len(x.owed), x.portal.Free())
	}
	return nil
}

// forge returns a message that is not authentic, for the same READ as b or for none.
func (x *forger) forge(b []byte) []byte {
	var f onerma.Frame
	if err := onerma.ParseFrame(b, &f); err != nil {
		x.t.Fatal(err)
	}
	sealed := slices.Clone(f.Sealed)
	switch x.r.IntN(4) {
	case 0:
		f.At = uint16(onerma.Unit * x.r.IntN(64))
	case 1:
		f.At, sealed = uint16(onerma.Unit*x.r.IntN(64)), make([]byte, onerma.TagLen+16*x.r.IntN(257))
	case 2: // all bytes of the READ
		f.At, sealed = 0, make([]byte, onerma.TagLen+int(f.Length))
	case 3:
		f.Slot, f.Generation = uint16(x.r.IntN(64)), f.Generation+uint32(x.r.IntN(2))
	}
	sealed[x.r.IntN(len(sealed))] ^= 1
	return append(f.AppendOpen(nil, len(sealed)-onerma.TagLen), sealed...)
}

// deliver passes a message to NIC 0 and checks what it has changed.
func (x *forger) deliver(b []byte, forged bool) error {
	before := [][]byte{bytes.Clone(x.memory[0]), bytes.Clone(x.memory[1])}
	x.nics[0].Frame(x.now, 0, packetio.Frame{Data: b}, &x.out)
	x.flush()
	if !bytes.Equal(before[1], x.memory[1]) || !bytes.Equal(before[0][x.end:], x.memory[0][x.end:]) {
		return fmt.Errorf("the target's memory or that behind the READs has changed")
	}
	for i, now := range x.memory[0][:x.end] {
		switch was := before[0][i]; {
		case now == was:
		case !x.owed[i]:
			return fmt.Errorf("byte %d has changed, and no READ waits for it", i)
		case forged && now != 0 || !forged && now != x.memory[1][x.from[i]]:
			return fmt.Errorf("byte %d is %d, forged: %v", i, now, forged)
		}
	}
	var f onerma.Frame
	if forged || onerma.ParseFrame(b, &f) != nil {
		return nil
	}
	at := int(x.nics[0].slots[f.Slot].cmd.Tag) + int(f.At)
	for i := range len(f.Sealed) - onerma.TagLen {
		if x.memory[0][at+i] != x.memory[1][x.from[at+i]] {
			return fmt.Errorf("byte %d has not landed", at+i)
		}
		delete(x.owed, at+i)
	}
	return nil
}
