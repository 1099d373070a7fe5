package engine

import (
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ringed is a NIC with queue pairs that are their own peers and take their work from rings.
type ringed struct {
	t testing.TB
	*side
	now clock.Time
}

func newRinged(t testing.TB) *ringed {
	return &ringed{t: t, side: newSide(t, newEngine(t, "a", 1, macA, nil, ipA))}
}

// add makes a queue pair with a ring at offset off of the region.
func (r *ringed) add(off int, cfg sendring.Config) *QP {
	r.t.Helper()
	q, err := r.e.CreateQP(r.pd, r.cq, r.cq, verbs.QPInit{MaxSGE: 16})
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.Addr, cfg.LKey = r.base+uint64(off), r.lkey
	if cfg.Blocks == 0 {
		cfg.Blocks = 16
	}
	if err := q.UseRing(cfg); err != nil {
		r.t.Fatal(err)
	}
	connect(r.t, r.now, q, q, 0, verbs.MTU1024)
	return q
}

// put writes an entry into block i of the ring at off.
func (r *ringed) put(off, i int, e sendring.Entry) {
	copy(r.buf[off+i*sendring.BlockSize:], e.AppendTo(nil))
}

// run lets virtual time pass until nothing is due, for at most limit.
func (r *ringed) run(limit clock.Time) {
	r.t.Helper()
	end := r.now + limit
	for {
		at := r.e.Deadline()
		if at > end {
			return
		}
		r.now = max(r.now, at)
		r.e.Tick(r.now, &r.out)
		if len(r.out.Frames) > 0 {
			r.t.Fatal("a frame left the NIC")
		}
	}
}

func (r *ringed) entry(op sendring.Opcode, flags sendring.Flags, remote, local, n int) sendring.Entry {
	e := sendring.Entry{Op: op, Flags: flags, RemoteAddr: r.base + uint64(remote), RKey: r.key, NSGE: 1}
	e.SGL[0] = r.sge(local, n)
	return e
}

const (
	ringA, ringB, ringC = 0, 4096, 8192
	dataAt              = 32768
)

// A request that another one has turned from NOP into WRITE is executed as a WRITE if its queue is
// managed and enabled afterwards, and as the old NOP if the queue has prefetched it: the compare and
// swap decides, as the if of RedN.
func TestIf(t *testing.T) {
	for _, managed := range []bool{true, false} {
		for _, equal := range []bool{true, false} {
			r := newRinged(t)
			worker := r.add(ringA, sendring.Config{})
			off, at, target := ringB, 0, worker
			if managed {
				target = r.add(ringB, sendring.Config{Managed: true})
			} else {
				off, at = ringA, 3
			}
			w := r.entry(sendring.NOP, sendring.Signalled, dataAt, dataAt+8, 8)
			w.Segments, w.QPN = 3, 0x010203
			r.put(off, at, w)
			binary.LittleEndian.PutUint64(r.buf[dataAt+8:], 77)
			operand := uint64(0x010203)
			if !equal {
				operand++
			}
			c := r.entry(sendring.CmpSwap, sendring.Signalled, off+at*64, dataAt+16, 8)
			// The NIC compares numbers in host order, so the bytes of the control segment are reversed.
			c.Compare = 3<<56 | operand&0xff<<48 | operand>>8&0xff<<40 | operand>>16<<32
			c.SwapAdd = c.Compare&^(0xffffff<<32) | uint64(sendring.Write)<<24
			r.put(ringA, 0, c)
			r.put(ringA, 1, sendring.Entry{Op: sendring.Wait, Count: 1, Object: r.cq.ID()})
			limit := uint32(4)
			if managed {
				r.put(ringA, 2, sendring.Entry{Op: sendring.Enable, Count: 1, Object: uint32(target.Num())})
				limit = 3
			} else {
				r.put(ringA, 2, sendring.Entry{Op: sendring.NOP})
			}
			if err := worker.Doorbell(r.now, limit); err != nil {
				t.Fatal(err)
			}
			r.run(second)
			want := uint64(0)
			if equal && managed {
				want = 77 // without an ENABLE the stale NOP is executed
			}
			if got := binary.LittleEndian.Uint64(r.buf[dataAt:]); got != want {
				t.Errorf("managed %t, equal %t: %d, want %d", managed, equal, got, want)
			}
			if wcs := r.poll(t); len(wcs) != 2 {
				t.Errorf("managed %t, equal %t: completions %+v", managed, equal, wcs)
			}
		}
	}
}

// want fails unless the completions have these statuses.
func (r *ringed) want(what string, statuses ...verbs.Status) []verbs.WC {
	r.t.Helper()
	wcs := r.poll(r.t)
	ok := len(wcs) == len(statuses)
	for i := range min(len(wcs), len(statuses)) {
		ok = ok && wcs[i].Status == statuses[i]
	}
	if !ok {
		r.t.Errorf("%s: completions %+v, want %v", what, wcs, statuses)
	}
	return wcs
}

func (r *ringed) bell(q *QP, limit uint32) {
	r.t.Helper()
	if err := q.Doorbell(r.now, limit); err != nil {
		r.t.Fatal(err)
	}
	r.run(second)
}

// Each operation does what it does when it is posted, and completes with the index of its entry.
func TestRingOperations(t *testing.T) {
	r := newRinged(t)
	q := r.add(ringA, sendring.Config{Checked: true})
	copy(r.buf[dataAt:], "abcdefgh")
	binary.LittleEndian.PutUint64(r.buf[dataAt+64:], 0x00ff_ffff_0001_ffff)
	if err := q.PostRecv([]verbs.RecvWR{
		{ID: 100, SGL: []verbs.SGE{r.sge(dataAt+128, 3), r.sge(dataAt+140, 5)}}, {ID: 101}, {ID: 102, SGL: []verbs.SGE{r.sge(dataAt+160, 8)}},
	}); err != nil {
		t.Fatal(err)
	}
	entries := []sendring.Entry{
		r.entry(sendring.Write, 0, dataAt+8, dataAt, 8),
		r.entry(sendring.Read, 0, dataAt, dataAt+16, 8),
		r.entry(sendring.Send, 0, 0, dataAt, 8),
		r.entry(sendring.WriteImm, 0, dataAt+24, dataAt, 8),
		r.entry(sendring.SendImm, 0, 0, dataAt, 8),
		r.entry(sendring.CmpSwap, 0, dataAt+32, dataAt+40, 8),
		r.entry(sendring.FetchAdd, 0, dataAt+32, dataAt+48, 8),
		r.entry(sendring.MaskedFetchAdd, 0, dataAt+64, dataAt+56, 8),
		{Op: sendring.NOP},
	}
	for i := range entries {
		e := &entries[i]
		e.Index, e.QPN, e.Flags, e.Imm = uint16(i), q.Num(), sendring.Signalled, uint32(7*i)
	}
	entries[5].SwapAdd, entries[6].SwapAdd = 40, 2
	entries[7].SwapAdd, entries[7].Compare = 0x0001_0000_0001_0001, 0x8000_8000_8000_8000
	for i, e := range entries {
		r.put(ringA, i, e)
	}
	r.bell(q, uint32(len(entries)))
	sent, received := 0, 0
	for _, wc := range r.poll(t) {
		if wc.Status != verbs.Success {
			t.Errorf("%+v", wc)
		}
		if wc.Opcode == verbs.WCRecv || wc.Opcode == verbs.WCRecvWriteImm {
			if wc.ID != uint64(100+received) {
				t.Errorf("receive %+v", wc)
			}
			received++
			continue
		}
		if wc.ID != uint64(sent) {
			t.Errorf("completion %+v, want the index %d", wc, sent)
		}
		sent++
	}
	if sent != len(entries) || received != 3 {
		t.Errorf("%d of %d completed, %d receives", sent, len(entries), received)
	}
	d := r.buf[dataAt:]
	for off, want := range map[int]string{8: "abcdefgh", 16: "abcdefgh", 24: "abcdefgh", 128: "abc", 140: "defgh", 160: "abcdefgh"} {
		if got := string(d[off : off+len(want)]); got != want {
			t.Errorf("at %d: %q, want %q", off, got, want)
		}
	}
	for off, want := range map[int]uint64{32: 42, 40: 0, 48: 40, 56: 0x00ff_ffff_0001_ffff, 64: 0x0100_ffff_0002_0000} {
		if got := binary.LittleEndian.Uint64(d[off:]); got != want {
			t.Errorf("at %d: %#x, want %#x", off, got, want)
		}
	}
	if got := r.e.Counters(); got.RingEntries != uint64(len(entries)) || got.RingRefused != 0 {
		t.Errorf("%d entries, %d refused", got.RingEntries, got.RingRefused)
	}
}

// The flags are read when the entry is executed: without Signalled there is no completion, and a
// fence holds the fetch of all that is behind it until the READ before it has landed.
func TestRingFlags(t *testing.T) {
	for _, fence := range []sendring.Flags{0, sendring.Fence} {
		r := newRinged(t)
		q := r.add(ringA, sendring.Config{Prefetch: 1})
		// The READ puts 8 bytes over the control segment of the NOP behind the fence: with the flag
		// Signalled in the copy that it reads.
		r.put(ringA, 0, r.entry(sendring.Read, 0, dataAt, ringA+2*64+8, 8))
		r.buf[dataAt+3] = byte(sendring.Signalled)
		r.put(ringA, 1, sendring.Entry{Op: sendring.NOP, Flags: fence})
		r.put(ringA, 2, sendring.Entry{Op: sendring.NOP})
		r.bell(q, 3)
		if fence == 0 {
			r.want("without a fence")
			continue
		}
		if wcs := r.want("with a fence", verbs.Success); len(wcs) == 1 && wcs[0].ID != 2 {
			t.Errorf("completion of %d", wcs[0].ID)
		}
	}
}

// A ring that enables itself goes on for ever: over the wrap of the ring and of the 16 bits of an
// index, when each lap raises the counts in its entries; and stops in the second lap, if it does not
// raise the count of the ENABLE.
func TestRingLaps(t *testing.T) {
	const laps = 70_000
	for _, raise := range []bool{true, false} {
		r := newRinged(t)
		q := r.add(ringB, sendring.Config{Managed: true, Counts16: true, Blocks: 8})
		master := r.add(ringA, sendring.Config{})
		// Little-endian shadows of the counts of WAIT and ENABLE, which the READ of each lap scatters
		// over the two, in the other byte order, and which the ADD behind that raises for the next.
		binary.LittleEndian.PutUint16(r.buf[dataAt:], 2)
		binary.LittleEndian.PutUint16(r.buf[dataAt+2:], 16)
		scatter := r.entry(sendring.Read, sendring.Signalled|sendring.Fence, dataAt, 0, 0)
		scatter.NSGE = 4
		for i, at := range []int{4*64 + 27, 4*64 + 26, 7*64 + 27, 7*64 + 26} {
			scatter.SGL[i] = r.sge(ringB+at, 1)
		}
		add := r.entry(sendring.MaskedFetchAdd, sendring.Signalled, dataAt, dataAt+8, 8)
		add.SwapAdd, add.Compare = 8<<16|4, 0x8000_8000
		if !raise {
			add.SwapAdd = 4
		}
		lap := r.entry(sendring.FetchAdd, sendring.Signalled, dataAt+16, dataAt+8, 8)
		lap.SwapAdd = 1
		r.put(ringB, 0, lap)
		r.put(ringB, 1, scatter)
		r.put(ringB, 3, sendring.Entry{Op: sendring.NOP, Flags: sendring.Fence})
		r.put(ringB, 4, sendring.Entry{Op: sendring.Wait, Object: r.cq.ID()})
		r.put(ringB, 5, add)
		r.put(ringB, 6, sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled})
		r.put(ringB, 7, sendring.Entry{Op: sendring.Enable, Object: uint32(q.Num())})
		r.put(ringA, 0, sendring.Entry{Op: sendring.Enable, Count: 8, Object: uint32(q.Num())})
		queue, _ := r.cq.Queue()
		queue.IgnoreOverrun()
		if err := master.Doorbell(r.now, 1); err != nil {
			t.Fatal(err)
		}
		for !raise || binary.LittleEndian.Uint64(r.buf[dataAt+16:]) < laps {
			at := r.e.Deadline()
			if at > r.now+second {
				break
			}
			r.now = max(r.now, at)
			r.e.Tick(r.now, &r.out)
		}
		got := binary.LittleEndian.Uint64(r.buf[dataAt+16:])
		if raise && got != laps || !raise && got != 2 {
			state, next, limit, _ := q.RingState()
			t.Errorf("raise %t: %d laps; the ring is %v at %d of %d", raise, got, state, next, limit)
		}
	}
}

// The last entries of a ring complete into a full completion queue: the queue reports the overflow
// at once, and the queue pair fails.
func TestRingOverflowsItsQueue(t *testing.T) {
	for name, last := range map[string]sendring.Entry{
		"completion of a NOP": {Op: sendring.NOP, Flags: sendring.Signalled},
		"refused entry":       {Op: sendring.Enable, Object: 1},
	} {
		r := newRinged(t)
		small, err := r.e.CreateCQ(1)
		if err != nil {
			t.Fatal(err)
		}
		r.cq = small
		q := r.add(ringA, sendring.Config{})
		r.put(ringA, 0, sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled})
		r.put(ringA, 1, last)
		if err := q.Doorbell(r.now, 2); err != nil {
			t.Fatal(err)
		}
		r.run(second)
		failed := false
		for ev, ok := r.e.Events.NextAsyncEvent(); ok; ev, ok = r.e.Events.NextAsyncEvent() {
			failed = failed || ev.Kind == verbs.EventCQErr && ev.CQ == small.ID()
		}
		if attr, err := q.Query(); !failed || err != nil || attr.State != verbs.StateError {
			t.Errorf("%s: event of the queue %t, queue pair in %v, %v", name, failed, attr.State, err)
		}
	}
}
