package trunk

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// rig is two ends and the network between them.
type rig struct {
	t    *testing.T
	now  clock.Time
	ends [2]*End
	// fate says what becomes of a datagram from an end: how often it arrives, and behind how many later ones.
	fate func(from int, d []byte) (copies, behind int)
	// full says that the kernel of an end refuses a datagram; nil: it takes all.
	full func(from int, d []byte) bool
	wire [2][]flight // by receiver
	seen [2][][]byte // copies of the datagrams from each end
	got  [2]packetio.Batch
	back time.Duration // one way
}

type flight struct {
	at     clock.Time
	behind int
	d      []byte
}

func config(side Side) Config {
	r := rand.New(rand.NewPCG(uint64(side), 7))
	return Config{
		Rack: "r", Trunk: "leaf0-leaf1", Secret: Secret{1, 2, 3}, Side: side, MTU: 1500, Wall: int64(side) * int64(time.Hour),
		Random: func() (b [32]byte) {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		},
	}
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: 1, fate: func(int, []byte) (int, int) { return 1, 0 }, back: 50 * time.Microsecond}
	for side := range r.ends {
		r.start(side, config(Side(side)))
	}
	return r
}

// start makes an end, as a switch that has restarted does.
func (r *rig) start(side int, cfg Config) {
	r.ends[side] = New(cfg)
	r.do(side, func(out *Out) { r.ends[side].Switch(r.now, true, out) })
}

func (r *rig) do(side int, f func(out *Out)) {
	var out Out
	f(&out)
	for _, d := range out.Datagrams {
		r.put(side, d)
	}
}

func (r *rig) put(from int, d []byte) {
	r.seen[from] = append(r.seen[from], slices.Clone(d))
	if r.full != nil && r.full(from, d) {
		r.ends[from].Unsent(d, 1)
		return
	}
	n, behind := r.fate(from, d)
	for range n {
		r.wire[1-from] = append(r.wire[1-from], flight{r.now.Add(r.back), behind, slices.Clone(d)})
	}
}

// run lets time pass, in steps.
func (r *rig) run(d time.Duration) {
	for end := r.now.Add(d); r.now < end; {
		r.stepTo(end)
	}
}

func (r *rig) step() { r.stepTo(clock.Never) }

// stepTo lets time pass until something happens, or until end.
func (r *rig) stepTo(end clock.Time) {
	for side, e := range r.ends {
		end = clock.Min(end, e.Deadline())
		if len(r.wire[side]) > 0 {
			end = clock.Min(end, r.wire[side][0].at)
		}
	}
	r.now = max(r.now.Add(time.Microsecond), end)
	for side, e := range r.ends {
		e.Begin(r.now, &r.got[side])
		for len(r.wire[side]) > 0 && r.wire[side][0].at <= r.now {
			f := r.wire[side][0]
			r.wire[side] = r.wire[side][1:]
			if f.behind > 0 && len(r.wire[side]) > 0 { // it is overtaken
				at := min(f.behind, len(r.wire[side]))
				f.behind = 0
				f.at = r.wire[side][at-1].at
				r.wire[side] = slices.Insert(r.wire[side], at, f)
				continue
			}
			if !e.Room() {
				r.keep(side)
				e.Begin(r.now, &r.got[side])
			}
			r.do(side, func(out *Out) { e.Receive(r.now, f.d, &r.got[side], out) })
		}
		r.keep(side)
		if r.now >= e.Deadline() {
			r.do(side, func(out *Out) { e.Tick(r.now, out) })
		}
	}
}

// keep copies the frames that have come, because the end uses their memory again.
func (r *rig) keep(side int) {
	for i := range r.got[side].Frames {
		f := &r.got[side].Frames[i]
		f.Data = slices.Clone(f.Data)
	}
}

// take returns the packets that have come.
func (r *rig) take(side int) (list [][]byte) {
	list = append(list, packets(r.got[side].Frames)...)
	r.got[side] = packetio.Batch{}
	return list
}

// packets returns the packets of frames.
func packets(frames []packetio.Frame) (list [][]byte) {
	for _, f := range frames {
		var b packetio.Batch
		b.Split(f)
		for _, s := range b.Frames {
			list = append(list, slices.Clone(s.Data))
		}
	}
	return list
}

// send sends frames from an end.
func (r *rig) send(side int, frames []packetio.Frame) {
	for len(frames) > 0 {
		train, n := r.ends[side].Pack(frames, 9014, make([]byte, 0, TrainSize))
		if n == 0 {
			r.t.Fatalf("end %d takes no frame in state %v", side, r.ends[side].state)
		}
		for b := train.Data; len(b) > 0; b = b[min(train.Size, len(b)):] {
			r.put(side, b[:min(train.Size, len(b))])
		}
		frames = frames[n:]
	}
}

// up waits until the trunk works at both ends, and both have found the path MTU.
func (r *rig) up() {
	r.t.Helper()
	for range 100_000 {
		if r.ends[0].Working() && r.ends[1].Working() && r.ends[0].mtu.trying == 0 && r.ends[1].mtu.trying == 0 {
			return
		}
		r.step()
	}
	r.t.Fatalf("the trunk does not come up: %+v and %+v", r.ends[0].Stats(), r.ends[1].Stats())
}

// roce returns n RoCEv2 packets of a flow, with payloads of size bytes.
func roce(flow, n, size int) (frames []packetio.Frame) {
	for i := range n {
		b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, byte(flow), 0x12, 0xb7, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(b[16:], uint16(28+size))
		binary.BigEndian.PutUint16(b[18:], uint16(i))
		binary.BigEndian.PutUint16(b[38:], uint16(8+size))
		var sum uint32
		for k := 14; k < 34; k += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[k:]))
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(b[24:], ^uint16(sum))
		for k := range size {
			b = append(b, byte(flow+i*7+k*k))
		}
		frames = append(frames, packetio.Frame{Data: b})
	}
	return frames
}
