package transport

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the tests of random traffic for this seed only")
	seedsFlag = flag.Uint64("seeds", 0, "how many seeds they run (0: 3000 and 1000 with RDMALAB_LONG, a third of that without, a tenth with -short or -race)")
)

// The layout of a side's memory: bytes that its peer READs, bytes that its peer WRITEs, words, then
// its own buffers.
const (
	readArea   = 0
	writeArea  = 16 << 10
	wordArea   = 32 << 10
	ownArea    = 40 << 10
	areaSize   = 16 << 10
	sideMemory = 256 << 10
	words      = 4
	slotSize   = 6 << 10 // local buffer of one work request
	maxOps     = 24
)

// actor posts random work on a side and checks its completions.
type actor struct {
	s, peer *side
	r       *rand.Rand
	left    int // work requests to post
	posted  []verbs.SendWR
	expect  []uint64 // original value of each atomic
	done    int      // how many of posted have completed, in order
	signals []int    // indexes of the signalled requests in posted
	word    [words]uint64
	written []byte // model of the peer's write area
	lens    []int  // length of each SEND, and -1 for a WRITE with immediate
	recvs   int    // posted by the peer for us
	got     int    // receives completed at the peer
	doomed  []*mem.Region
}

// Random work over a wire with faults: every byte is right, atomics are executed once, and
// completions come in order, each once.
func TestRandomTraffic(t *testing.T) { randomSeeds(t, 3000, 0, selective.GoBackN) }

// The same holds if packets that were sent long ago, or were lost, arrive at any time.
func TestRandomTrafficWithOldPackets(t *testing.T) { randomSeeds(t, 1000, 0.2, selective.GoBackN) }

// Both hold with selective retransmission, too.
func TestRandomTrafficIRN(t *testing.T)  { randomSeeds(t, 1500, 0, selective.IRN) }
func TestRandomTrafficRACK(t *testing.T) { randomSeeds(t, 1500, 0, selective.RACK) }

func TestRandomTrafficIRNWithOldPackets(t *testing.T)  { randomSeeds(t, 1000, 0.2, selective.IRN) }
func TestRandomTrafficRACKWithOldPackets(t *testing.T) { randomSeeds(t, 1000, 0.2, selective.RACK) }

// randomSeeds runs n seeds, or those that the flags name. old is the field of badWire.
func randomSeeds(t *testing.T, n uint64, old float64, kind selective.Kind) {
	if *seedFlag != 0 {
		randomTraffic(t, *seedFlag, old, kind)
		return
	}
	switch {
	case testing.Short() || raceEnabled:
		n /= 10
	case os.Getenv("RDMALAB_LONG") == "": // as verbstest.Tries, which imports this package
		n /= 3
	}
	if *seedsFlag != 0 {
		n = *seedsFlag
	}
	for seed := uint64(1); seed <= n; seed++ {
		randomTraffic(t, seed, old, kind)
		if t.Failed() {
			t.Fatalf("replay: go test ./softrnic/transport -run '^%s$' -seed %d", t.Name(), seed)
		}
	}
}

func randomTraffic(t *testing.T, seed uint64, old float64, kind selective.Kind) {
	r := rand.New(rand.NewPCG(seed, 42))
	pick := func(v ...float64) float64 { return v[r.IntN(len(v))] }
	mtus := []verbs.MTU{verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU2048, verbs.MTU4096}
	cfg := Config{Window: 1 + r.IntN(40), AckEvery: 1 + r.IntN(10), CoalesceAcks: r.IntN(2) == 0, MaxInline: 300}
	if kind != selective.GoBackN {
		cfg.Recovery = Recovery{Kind: kind, Ahead: 1 + r.IntN(200)}
	}
	cfg.QPN = 0x11
	a := newSide(t, "a", seed, sideMemory, cfg)
	cfg.QPN = 0x12
	b := newSide(t, "b", seed+1, sideMemory, cfg)
	if seed%4 == 3 {
		shareReceives(t, a, 128)
		shareReceives(t, b, 128)
	}
	depth := 1 + r.IntN(5)
	l := defaultLink
	l.rtr.Ahead = cfg.Recovery.Reach(cfg.Window)
	l.mtu, l.psnA, l.psnB = mtus[r.IntN(5)], 0xffffff-wire.PSN(r.IntN(60)), wire.PSN(r.IntN(1<<24))
	l.rtr.MaxDestRdAtomic, l.rts.MaxRdAtomic = depth, 1+r.IntN(depth)
	l.rtr.MinRNRTimer, l.rts.Timeout = uint8(1+r.IntN(14)), uint8(7+r.IntN(3))
	connect(t, a, b, l)
	if r.IntN(3) == 0 {
		for _, s := range []*side{a, b} {
			s.env.Mem.SetTear(mem.SeededTear(seed, 0.3, 20*time.Microsecond))
		}
	}
	w := &badWire{r: r, loss: pick(0, 0.02, 0.07), duplicate: pick(0, 0.05, 0.2), hinder: pick(0, 0.05, 0.2), old: old}
	actors := []*actor{newActor(a, b, r), newActor(b, a, r)}
	for range 200000 {
		busy := w.step(a, b, w.now.Add(time.Duration(r.IntN(50_000))))
		for _, x := range actors {
			if err := x.check(); err != nil {
				t.Errorf("seed %d at %v: %s: %v", seed, w.now, x.s.name, err)
				return
			}
			x.post(t, w.now)
		}
		if !busy && actors[0].finished() && actors[1].finished() && len(w.air) == 0 {
			break
		}
	}
	for _, x := range actors {
		if err := x.verdict(); err != nil {
			t.Errorf("seed %d at %v: %s: %v", seed, w.now, x.s.name, err)
		}
		if own, all := x.s.qp.Query().RetransPkts, x.s.counters.RetransPkts; own != all {
			t.Errorf("seed %d: %s: its only queue pair sent %d packets again, the NIC %d", seed, x.s.name, own, all)
		}
	}
}

func newActor(s, peer *side, r *rand.Rand) *actor {
	pattern(peer.buf[readArea:readArea+areaSize], 9)
	return &actor{s: s, peer: peer, r: r, left: 1 + r.IntN(60), written: make([]byte, areaSize)}
}

func (x *actor) finished() bool { return x.left == 0 && x.done == len(x.posted) }

// post posts some work and some receives.
func (x *actor) post(t *testing.T, now clock.Time) {
	for x.left > 0 && len(x.posted)-x.done < maxOps && x.r.IntN(3) > 0 {
		x.left--
		x.postOne(t, now)
	}
	for x.recvs < len(x.lens) && x.r.IntN(3) == 0 {
		i := x.recvs
		x.recvs++
		off := x.recvSlot(i)
		if err := x.peer.postRecv(&verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{x.peer.sge(off, 100), x.peer.sge(off+100, slotSize-100)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Local buffers: a slot for each send in flight, then one for each posted receive.
func (x *actor) sendSlot(i int) int { return ownArea + i%(maxOps+4)*slotSize/2 }
func (x *actor) recvSlot(i int) int { return ownArea + (maxOps+4)*slotSize/2 + i%8*slotSize }

var randomOps = []verbs.WROpcode{
	verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWrite, verbs.OpWriteImm,
	verbs.OpRead, verbs.OpRead, verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpFetchAdd,
	verbs.OpSendInv, verbs.OpLocalInv, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite,
	verbs.OpFlush,
}

func (x *actor) postOne(t *testing.T, now clock.Time) {
	i := len(x.posted)
	op := randomOps[x.r.IntN(len(randomOps))]
	if len(x.lens)-x.got >= 8 && (op <= verbs.OpSendInv || op == verbs.OpWriteImm) {
		op = verbs.OpRead // no more receive slots
	}
	n := []int{0, 1, 64, 256, 1000, x.r.IntN(slotSize / 2)}[x.r.IntN(6)]
	off := x.sendSlot(i)
	wr := verbs.SendWR{ID: uint64(i), Op: op, RKey: x.peer.mem.RKey(), Imm: uint32(i)}
	data := x.s.buf[off : off+n]
	var original uint64
	switch op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv:
		pattern(data, len(x.lens))
		x.lens = append(x.lens, n)
		if op == verbs.OpSendInv {
			wr.InvRKey = x.key(t, x.peer)
		}
	case verbs.OpLocalInv:
		n = 0
		wr.InvRKey = x.key(t, x.s)
	case verbs.OpWrite, verbs.OpWriteImm:
		pattern(data, i)
		at := x.r.IntN(areaSize - n + 1)
		copy(x.written[at:], data)
		wr.RemoteAddr = x.peer.mem.Base() + writeArea + uint64(at)
		if op == verbs.OpWriteImm {
			x.lens = append(x.lens, -1-n)
		}
	case verbs.OpFlush:
		wr.RemoteAddr, wr.Flush = x.peer.mem.Base()+writeArea, verbs.Flush{Length: uint32(n), Region: x.r.IntN(2) == 0, Global: true}
		n = 0
	case verbs.OpRead:
		clear(data)
		wr.RemoteAddr = x.peer.mem.Base() + readArea
	default:
		n = 8
		k := x.r.IntN(words)
		wr.RemoteAddr = x.peer.mem.Base() + wordArea + uint64(8*k)
		original = x.word[k]
		x.word[k] = x.atomic(&wr, original)
	}
	if n <= 300 && op <= verbs.OpWriteImm && x.r.IntN(2) == 0 {
		wr.Flags |= verbs.Inline
		wr.Data = append([]byte(nil), data...)
	} else {
		cut := x.r.IntN(n + 1)
		if atomics>>op&1 != 0 {
			cut = 0
		}
		if op != verbs.OpLocalInv && !isBare(op) {
			wr.SGL = []verbs.SGE{x.s.sge(off, cut), x.s.sge(off+cut, n-cut)}
		}
	}
	if x.r.IntN(3) > 0 || x.left == 0 {
		wr.Flags |= verbs.Signalled
		x.signals = append(x.signals, i)
	}
	if x.r.IntN(8) == 0 {
		wr.Flags |= verbs.Fence
	}
	x.posted, x.expect = append(x.posted, wr), append(x.expect, original)
	if err := x.s.qp.PostSend(now, &wr, &x.s.out); err != nil {
		t.Fatal(err)
	}
}

// atomic draws the operands of an atomic or ATOMIC_WRITE and returns what the word holds after it.
// The fields of masked ones are the bytes.
func (x *actor) atomic(wr *verbs.SendWR, word uint64) uint64 {
	wr.CompareAdd, wr.Swap = uint64(x.r.IntN(3)), uint64(x.r.IntN(3))
	switch wr.Op {
	case verbs.OpAtomicWrite:
		wr.CompareAddMask, wr.SwapMask, wr.Swap = x.r.Uint64(), x.r.Uint64(), x.r.Uint64()
		return wr.Swap
	case verbs.OpCmpSwap:
		if word == wr.CompareAdd {
			return wr.Swap
		}
		return word
	case verbs.OpFetchAdd:
		wr.CompareAddMask = x.r.Uint64()
		return word + wr.CompareAdd
	case verbs.OpMaskedFetchAdd:
		wr.CompareAdd, wr.CompareAddMask, wr.SwapMask = x.r.Uint64(), 0x8080_8080_8080_8080, x.r.Uint64()
		a, b := binary.NativeEndian.AppendUint64(nil, word), binary.NativeEndian.AppendUint64(nil, wr.CompareAdd)
		for i := range a {
			a[i] += b[i]
		}
		return binary.NativeEndian.Uint64(a)
	}
	wr.CompareAddMask, wr.SwapMask = uint64(1+x.r.IntN(2)), uint64(x.r.IntN(1<<16))
	for bit := range 64 {
		if m := uint64(1) << bit; wr.CompareAddMask&m != 0 && word&m != wr.CompareAdd&m {
			return word
		}
	}
	for bit := range 64 {
		if m := uint64(1) << bit; wr.SwapMask&m != 0 {
			word = word&^m | wr.Swap&m
		}
	}
	return word
}

// key registers a region to be invalidated. If it is invalidated twice, or not at all, the check
// fails.
func (x *actor) key(t *testing.T, s *side) uint32 {
	r := s.fastReg(t, 8, allAccess)
	x.doomed = append(x.doomed, r)
	return r.RKey()
}

// check polls completions of the sends and of the receives at the peer.
func (x *actor) check() error {
	var wc [1]verbs.WC
	for x.s.scq.Poll(wc[:]) == 1 {
		if wc[0].Status != verbs.Success {
			return fmt.Errorf("work request %d: %v", wc[0].ID, wc[0].Status)
		}
		if len(x.signals) == 0 || wc[0].ID != uint64(x.signals[0]) {
			return fmt.Errorf("completion of %d, want %v", wc[0].ID, x.signals)
		}
		x.signals = x.signals[1:]
		for ; x.done <= int(wc[0].ID); x.done++ {
			if err := x.checkResult(x.done); err != nil {
				return err
			}
		}
	}
	for x.peer.rcq.Poll(wc[:]) == 1 {
		if err := x.checkReceive(wc[0]); err != nil {
			return err
		}
		x.got++
	}
	return nil
}

func (x *actor) checkResult(i int) error {
	wr := &x.posted[i]
	off := x.sendSlot(i)
	switch wr.Op {
	case verbs.OpRead:
		n := int(wr.SGL[0].Length + wr.SGL[1].Length)
		if !bytes.Equal(x.s.buf[off:off+n], x.peer.buf[readArea:readArea+n]) {
			return fmt.Errorf("READ %d of %d bytes differs", i, n)
		}
	case verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd:
		if got := binary.NativeEndian.Uint64(x.s.buf[off:]); got != x.expect[i] {
			return fmt.Errorf("%v %d answers %d, want %d", wr.Op, i, got, x.expect[i])
		}
	}
	return nil
}

func (x *actor) checkReceive(wc verbs.WC) error {
	if x.got >= len(x.lens) || wc.Status != verbs.Success || wc.ID != uint64(x.got) {
		return fmt.Errorf("receive %d: %+v", x.got, wc)
	}
	n := x.lens[x.got]
	if n < 0 {
		if wc.Opcode != verbs.WCRecvWriteImm || int(wc.ByteLen) != -1-n {
			return fmt.Errorf("receive %d: %+v, want a write of %d", x.got, wc, -1-n)
		}
		return nil
	}
	want := make([]byte, n)
	pattern(want, x.got)
	off := x.recvSlot(x.got)
	if wc.Opcode != verbs.WCRecv || int(wc.ByteLen) != n || !bytes.Equal(x.peer.buf[off:off+n], want) {
		return fmt.Errorf("receive %d: %+v or its bytes are wrong, want %d bytes", x.got, wc, n)
	}
	return nil
}

// verdict checks the final state.
func (x *actor) verdict() error {
	if !x.finished() || x.got != len(x.lens) {
		return fmt.Errorf("stuck: %d of %d complete, %d not posted, %d of %d received; %+v", x.done, len(x.posted), x.left, x.got, len(x.lens), x.s.qp.Query())
	}
	if !bytes.Equal(x.peer.buf[writeArea:writeArea+areaSize], x.written) {
		return fmt.Errorf("the written memory differs")
	}
	for _, r := range x.doomed {
		if r.Valid() {
			return fmt.Errorf("key %#x was not invalidated", r.RKey())
		}
	}
	for k, want := range x.word {
		if got, _ := x.peer.mem.Load64(wordArea + 8*k); got != want {
			return fmt.Errorf("word %d is %d, want %d", k, got, want)
		}
	}
	return nil
}
