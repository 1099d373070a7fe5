package nic

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// FuzzNIC: whatever messages arrive, with any key that a client has, at any time, the NIC does not
// panic, its tables stay consistent, and no byte changes but those that a WRITE may change.
func FuzzNIC(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add(uint64(2), bytes.Repeat([]byte{7, 200, 13}, 40))
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = one(r, 0, 1500, 300) })
		p := w.portal(0, 7, 16)
		w.keep = true
		before := bytes.Clone(w.memory[1])
		for i := 0; i+1 < len(script); i += 2 {
			act, arg := script[i], int(script[i+1])
			switch act % 6 {
			case 0, 1:
				c := w.command(one(r, onerma.Read, onerma.Write), 7, uint64(arg)*64%4096, 1+arg*16)
				c.Class = uint8(arg % 2)
				_ = p.Issue(w.now, c)
			case 2:
				w.run(w.now.Add(time.Duration(arg) * rtt / 32))
			case 3: // a recorded message, changed and sealed again with a good key
				if len(w.sent) > 0 {
					w.inject(time.Duration(arg)*rtt/64, w.forge(r, w.sent[r.IntN(len(w.sent))]))
				}
			case 4: // changed without the key
				if len(w.sent) > 0 {
					b := slices.Clone(w.sent[r.IntN(len(w.sent))])
					b[14+r.IntN(len(b)-14)] ^= 1 << r.IntN(8)
					w.inject(0, b)
				}
			case 5:
				p.Poll(make([]Completion, 1+arg%4))
			}
		}
		w.settle()
		p.Close()
		w.settle()
		if !bytes.Equal(before[8192:], w.memory[1][8192:]) {
			t.Fatal("bytes have changed that no WRITE names")
		}
		for i, n := range w.nics {
			if used, _ := n.Window(); used != 0 || n.inbound != 0 || len(n.freeSlots) != 64 || len(n.freeTickets) != 64 || n.Deadline() != clock.Never {
				t.Fatalf("NIC %d: %d bytes outstanding, %d inbound, %d slots, %d tickets free", i, used, n.inbound, len(n.freeSlots), len(n.freeTickets))
			}
		}
	})
}

func one[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// forge changes a field of a message and seals it again as a process would that has the keys. WRITEs
// stay within the first 8192 bytes.
func (w *world) forge(r *rand.Rand, b []byte) []byte {
	var f onerma.Frame
	if onerma.ParseFrame(b, &f) != nil {
		return b
	}
	switch r.IntN(8) {
	case 0:
		f.Kind = onerma.Kind(r.IntN(8))
	case 1:
		f.Op = onerma.Op(r.IntN(3))
	case 2:
		f.Slot = uint16(r.IntN(70))
	case 3:
		f.Generation += uint32(r.IntN(3)) - 1
	case 4:
		f.At = uint16(r.IntN(64) * 64)
	case 5:
		f.Length = uint32(1 + r.IntN(4096))
	case 6:
		f.Offset = uint64(r.IntN(4096))
	case 7:
		f.Ticket = r.Uint32()
	}
	f.Counter = 1<<62 | r.Uint64()>>2
	n := len(f.Sealed) - onerma.TagLen
	s := &sealer{}
	s.iv.set(f.Counter, f.IPv4.Src)
	key := NewCipher(w.regions[1].Grant(addrOf(0), 7, f.Op))
	return s.seal(f.AppendOpen(nil, n), make([]byte, n), key, &vector{})
}
