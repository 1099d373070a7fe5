package trunk

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Datagrams that were recorded, changed, cut or made up are counted, and change nothing: no frame comes, no
// key changes, and what is sent meanwhile comes.
func TestHostileDatagrams(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	r := newRig(t)
	r.up()
	r.carries()
	cfg := config(Near)
	cfg.Random = func() [32]byte { return [32]byte{8} }
	r.start(0, cfg) // so there are datagrams of an old key
	r.run(Silence + 2*Interval)
	r.up()
	r.carries()
	r.send(0, roce(3, 40, 3000))
	r.run(time.Millisecond)
	recorded := r.seen[0]
	if len(recorded) < 100 {
		t.Fatalf("%d datagrams were recorded", len(recorded))
	}
	r.take(1)
	e := r.ends[1]
	before, key, window := e.Stats(), e.keys.now, e.keys.now.window
	rnd := rand.New(rand.NewPCG(1, 1))
	var frames packetio.Batch
	var out Out
	buf := make([]byte, 0, 70_000)
	for range n {
		e.Begin(r.now, &frames)
		d := append(buf[:0], recorded[rnd.IntN(len(recorded))]...)
		switch rnd.IntN(6) {
		case 0: // repeated
		case 1: // changed
			d[rnd.IntN(len(d))] ^= 1 << rnd.IntN(8)
		case 2: // cut
			d = d[:rnd.IntN(len(d))]
		case 3: // too long
			d = append(d, make([]byte, rnd.IntN(60_000))...)
		case 4: // a new counter
			d[11] = byte(rnd.Uint32())
			d[5+rnd.IntN(6)] = byte(rnd.Uint32())
		case 5: // a piece of another train
			d[12], d[13] = byte(rnd.Uint32()), byte(rnd.Uint32())
		}
		e.Receive(r.now, d, &frames, &out)
	}
	after := e.Stats()
	if got := after.Refused.Sum() - before.Refused.Sum(); got != uint64(n) {
		t.Errorf("%d of %d datagrams were counted as refused: %+v", got, n, after.Refused)
	}
	for reason, count := range map[string]uint64{
		"old or unknown key": after.Refused.UnknownEpoch, "replayed": after.Refused.Replayed, "bad tag": after.Refused.BadTag,
		"malformed": after.Refused.Malformed, "oversized": after.Refused.Oversized, "version": after.Refused.Version, "other rack": after.Refused.OtherRack,
	} {
		if count == 0 {
			t.Errorf("none was refused as %s", reason)
		}
	}
	after.Refused, before.Refused = Refused{}, Refused{}
	after.Trouble, before.Trouble = "", ""
	if len(frames.Frames) > 0 || len(out.Datagrams) > 0 || e.keys.now != key || key.window != window || after != before {
		t.Errorf("%d frames came, %d datagrams were answered; counted %+v, before %+v", len(frames.Frames), len(out.Datagrams), after, before)
	}
	if !r.carries() {
		t.Error("the trunk carries nothing afterwards")
	}
}

// Forged pieces do not disturb a train that is put together.
func TestForgedPiecesOfATrain(t *testing.T) {
	r := newRig(t)
	r.up()
	r.take(1)
	frames := roce(1, 10, 1500)
	train, _ := r.ends[0].Pack(frames, 9014, make([]byte, 0, TrainSize))
	var pieces [][]byte
	for b := train.Data; len(b) > 0; b = b[min(train.Size, len(b)):] {
		pieces = append(pieces, slices.Clone(b[:min(train.Size, len(b))]))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	rnd.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	e := r.ends[1]
	var in packetio.Batch
	var out Out
	e.Begin(r.now, &in)
	for _, p := range pieces {
		for _, other := range pieces {
			for range 3 {
				d := slices.Clone(other)
				d[headerLen+rnd.IntN(len(d)-headerLen)] ^= 1
				if rnd.IntN(2) == 0 {
					d = d[:len(d)-rnd.IntN(len(d)-Overhead)]
				}
				e.Receive(r.now, d, &in, &out)
			}
		}
		e.Receive(r.now, slices.Clone(p), &in, &out)
	}
	got := packets(in.Frames)
	if len(got) != len(frames) {
		t.Fatalf("%d packets came", len(got))
	}
	for i := range got {
		if !bytes.Equal(got[i], frames[i].Data) {
			t.Errorf("packet %d has changed", i)
		}
	}
}

// A repeated hello cannot make an end take an old key, also while the trunk is down.
func TestRepeatedHellos(t *testing.T) {
	r := newRig(t)
	r.up()
	first := r.seen[0]
	cfg := config(Near)
	cfg.Random = func() [32]byte { return [32]byte{8} }
	r.start(0, cfg)
	r.run(Silence + 2*Interval)
	r.up()
	r.fate = func(int, []byte) (int, int) { return 0, 0 }
	r.run(Silence + Interval)
	e := r.ends[1]
	if e.state != Calling {
		t.Fatalf("the end is %v", e.state)
	}
	key, keys := e.keys.now, e.stats.Keys
	for range 50 {
		for _, d := range first {
			var out Out
			e.Begin(r.now, &r.got[1])
			e.Receive(r.now, slices.Clone(d), &r.got[1], &out)
			if len(out.Datagrams) > 1 {
				t.Fatalf("a datagram of %d bytes was answered by %d", len(d), len(out.Datagrams))
			}
		}
		r.run(time.Millisecond)
	}
	if e.keys.now != key || e.stats.Keys != keys || e.state != Calling {
		t.Errorf("the end has taken another key: %+v", e.Stats())
	}
	r.fate = func(int, []byte) (int, int) { return 1, 0 }
	r.run(3 * Interval)
	if !r.carries() {
		t.Errorf("the trunk does not come up again: %+v", e.Stats())
	}
}

// Data of an end that has the key, but is broken, makes no end panic.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{0, 0, 0, 20, 1, 5, 0, 42, 0, 8, 0, 34, 0, 6}, 100, uint8(3), uint16(0), uint8(1))
	f.Add(bytes.Repeat([]byte{0, 0, 0, 14}, 40), 30, uint8(2), uint16(5), uint8(0))
	f.Fuzz(func(t *testing.T, records []byte, piece int, count uint8, first uint16, lost uint8) {
		r := newRig(t)
		r.up()
		s := r.ends[0].keys.now
		if piece = piece & 0x1fff; piece == 0 || count == 0 || len(records) == 0 {
			return
		}
		e := r.ends[1]
		for round := range 2 {
			var in packetio.Batch
			var out Out
			e.Begin(r.now, &in)
			for i := range int(count) {
				h := header{version: Version, kind: kindData, epoch: s.out, rack: r.ends[0].id.rack, index: uint8(i), count: count, first: first}
				d := make([]byte, piece+Overhead)
				for k := 0; k < piece; k += copy(d[headerLen+k:len(d)-tagLen], records) {
				}
				if i == 0 {
					copy(d[headerLen:len(d)-tagLen], records)
				}
				s.seal(&h, d)
				if lost>>(i%8)&1 == 0 && e.Room() {
					e.Receive(r.now, d, &in, &out)
				}
			}
			e.Begin(r.now.Add(time.Duration(round)*time.Second), &in)
			for _, p := range packets(in.Frames) {
				if len(p) > packetio.MaxFrame {
					t.Errorf("a frame of %d bytes", len(p))
				}
			}
		}
	})
}

// No datagram makes an end panic, or give out a frame.
func FuzzReceive(f *testing.F) {
	r := newRig(&testing.T{})
	for range 200 {
		r.step()
	}
	for _, d := range r.seen[0] {
		f.Add(d, uint8(0))
	}
	f.Fuzz(func(t *testing.T, d []byte, kind uint8) {
		r := newRig(t)
		r.up()
		r.take(1)
		if len(d) >= 4 {
			d[0] = Version<<4 | kind&7
			d[1] = r.ends[0].keys.now.out
			d[2], d[3] = byte(r.ends[0].id.rack>>8), byte(r.ends[0].id.rack)
		}
		var in packetio.Batch
		var out Out
		r.ends[1].Begin(r.now, &in)
		r.ends[1].Receive(r.now, d, &in, &out)
		if len(in.Frames) > 0 || r.ends[1].state != Up {
			t.Errorf("%x: %d frames, state %v", d, len(in.Frames), r.ends[1].state)
		}
	})
}

// Trains are sealed and opened without allocation.
func TestNoAllocation(t *testing.T) {
	r := newRig(t)
	r.up()
	frames := roce(1, 14, 4112)
	train := make([]byte, 0, TrainSize)
	var in packetio.Batch
	var out Out
	if n := testing.AllocsPerRun(100, func() {
		tr, _ := r.ends[0].Pack(frames, 9014, train)
		in.Reset()
		r.ends[1].Begin(r.now, &in)
		for b := tr.Data; len(b) > 0; b = b[min(tr.Size, len(b)):] {
			r.ends[1].Receive(r.now, b[:min(tr.Size, len(b))], &in, &out)
		}
	}); n > 0 || len(packets(in.Frames)) != 14 {
		t.Errorf("%v allocations a train; %d packets came", n, len(in.Frames))
	}
}

func BenchmarkTrain(b *testing.B) {
	r := newRig(&testing.T{})
	for range 200 {
		r.step()
	}
	frames := roce(1, 14, 4112)
	train := make([]byte, 0, TrainSize)
	var in packetio.Batch
	var out Out
	b.SetBytes(14 * 4154)
	for b.Loop() {
		tr, _ := r.ends[0].Pack(frames, 9014, train)
		in.Reset()
		r.ends[1].Begin(r.now, &in)
		for d := tr.Data; len(d) > 0; d = d[min(tr.Size, len(d)):] {
			r.ends[1].Receive(r.now, d[:min(tr.Size, len(d))], &in, &out)
		}
	}
}
