package memlink

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// memory is a direction that belongs to no link.
var memory = sync.OnceValue(func() []byte { return make([]byte, directLen) })

// A receiver takes no more frames than the ring has, none outside of the data, and does not go on
// after an impossible position, whatever is in the memory.
func FuzzReceiver(f *testing.F) {
	f.Add(uint64(0), uint64(3), []byte{0, 0, 0, 0, 100, 0, 0, 0})
	f.Add(uint64(1<<64-2), uint64(1<<64-1), []byte{0xc0, 0xff, 0x7f, 0, 100, 0, 0, 0, 255, 255, 255, 255})
	f.Add(uint64(5), uint64(5+Slots+1), []byte{1})
	f.Fuzz(func(t *testing.T, head, tail uint64, entries []byte) {
		mem := memory()
		clear(mem[:offData])
		for at := offEntries; at < offData && len(entries) > 0; {
			at += copy(mem[at:offData], entries)
		}
		r := receiver{words: wordsOf(mem), mem: mem}
		r.head.Store(head)
		r.words.tail.Store(tail)
		var b packetio.Batch
		buf := make([]byte, recvBytes)
		for range Slots + 1 {
			b.Reset()
			before := r.head.Load()
			bad, ok := r.take(&b, 0, buf)
			taken := r.head.Load() - before
			if ok != (tail-before <= Slots) || taken > batchSize || uint64(len(b.Frames))+bad != taken {
				t.Fatalf("head %d, tail %d: took %d, %d malformed, %d frames, ok %v", before, tail, taken, bad, len(b.Frames), ok)
			}
			used := 0
			for _, f := range b.Frames {
				if used += len(f.Data); len(f.Data) < minFrame || len(f.Data) > packetio.MaxFrame || used > recvBytes {
					t.Fatalf("a frame of %d bytes", len(f.Data))
				}
			}
			if taken == 0 {
				if ok && tail != before {
					t.Fatalf("%d frames were never taken", tail-before)
				}
				return
			}
		}
		t.Fatal("the receiver does not come to an end")
	})
}

// A sender whose peer writes any position puts frames only into the ring's own memory, and notices
// positions that cannot be.
func FuzzSender(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{0xff, 0, 0xff, 0x80, 0x7f, 200, 0, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		mem := memory()
		clear(mem[:offData])
		s := newSender(mem)
		var frame packetio.Frame
		for i, step := range steps {
			n := minFrame + int(step)*257
			b, offset, ok := s.reserve(n)
			if !ok {
				return
			}
			if b != nil {
				if len(b) != n || offset+n > DataBytes {
					t.Fatalf("step %d: %d bytes at %d", i, len(b), offset)
				}
				s.commit(offset, n, &frame)
			}
			if s.tail-s.head > Slots {
				t.Fatalf("step %d: %d frames in flight", i, s.tail-s.head)
			}
			if step%3 == 0 { // mostly a step forward, at times anything
				head := s.head + uint64(step%16)
				if step%5 == 0 && len(steps)-i > 8 {
					head = binary.LittleEndian.Uint64(steps[i:])
				}
				possible := head-s.head <= s.tail-s.head
				s.words.head.Store(head)
				if s.refresh() != possible {
					t.Fatalf("step %d: head %d of %d..%d", i, head, s.head, s.tail)
				}
				if !possible {
					return
				}
			}
		}
	})
}

// While a process writes at random all over the memory of a link, both ends go on: no panic, no
// hang; the link is made again each time.
func TestScribbler(t *testing.T) {
	k := attached(t, Config{MTU: 4200, Merge: true})
	r := rand.New(rand.NewPCG(1, 5))
	var out, in packetio.Batch
	for i := range 40 {
		out.Add(0, roce(r, uint16(i), 500))
	}
	broken := 0
	for round := range 3000 {
		j := k.host.at.Load()
		for range 4 {
			at := r.IntN(offData)
			if r.IntN(2) == 0 {
				at = []int{offTail, offHead, offAsleep, offDropped}[r.IntN(4)]
			}
			mem := j.tx.mem
			if r.IntN(2) == 0 {
				mem = j.rx.mem
			}
			binary.LittleEndian.PutUint64(mem[at&^7:], r.Uint64()>>r.IntN(64))
		}
		for _, p := range []*Port{k.host, k.sw} {
			if _, err := p.Send(&out); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if _, err := p.Recv(&in); err != nil {
					t.Fatal(err)
				}
				for i := range in.Frames {
					var b packetio.Batch
					b.Split(in.Frames[i])
				}
			}
		}
		if j.gone.Load() {
			broken++
			eventually(t, "the link is made again", func() bool {
				return k.host.at.Load() != j && k.host.Attached() && k.sw.Attached()
			})
		}
		if broken == 30 {
			t.Logf("%d rounds", round)
			break
		}
	}
	if broken == 0 {
		t.Error("no position was ever noticed to be wrong")
	}
	eventually(t, "frames cross again", func() bool {
		all(t, k.sw)
		if _, err := k.host.Send(&out); err != nil {
			t.Fatal(err)
		}
		return len(all(t, k.sw)) == 1
	})
}
