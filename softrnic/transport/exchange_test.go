package transport

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pattern fills b with bytes that depend on a number.
func pattern(b []byte, n int) {
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ n*0x5b)
	}
}

// Every operation moves the right bytes on a wire without faults, at lengths around packet
// boundaries.
func TestOperationsMoveBytes(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 512, 5000} {
		a, b := newPair(t)
		local, remote := a.sge(0, n), b.mem.Base()+8192
		pattern(a.buf[:n], 1)
		post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{local}, RemoteAddr: remote, RKey: b.mem.RKey()})
		settle(t, 0, a, b)
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.Opcode != verbs.WCWrite {
			t.Fatalf("len %d: write: %+v", n, wc)
		}
		if !bytes.Equal(b.buf[8192:8192+n], a.buf[:n]) {
			t.Fatalf("len %d: write moved other bytes", n)
		}

		pattern(b.buf[8192:8192+n], 2)
		post(t, a, verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{local}, RemoteAddr: remote, RKey: b.mem.RKey()})
		settle(t, 0, a, b)
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.ByteLen != uint32(n) {
			t.Fatalf("len %d: read: %+v", n, wc)
		}
		if !bytes.Equal(b.buf[8192:8192+n], a.buf[:n]) {
			t.Fatalf("len %d: read moved other bytes", n)
		}

		if err := b.qp.PostRecv(&verbs.RecvWR{ID: 3, SGL: []verbs.SGE{b.sge(16384, 100), b.sge(20000, 8000)}}); err != nil {
			t.Fatal(err)
		}
		pattern(a.buf[:n], 3)
		post(t, a, verbs.SendWR{ID: 4, Op: verbs.OpSendImm, Flags: verbs.Signalled | verbs.Solicited, Imm: 77, SGL: []verbs.SGE{a.sge(0, n/3), a.sge(n/3, n-n/3)}})
		settle(t, 0, a, b)
		onlyWC(t, a.scq)
		wc := onlyWC(t, b.rcq)
		if wc.Status != verbs.Success || wc.ByteLen != uint32(n) || wc.Imm != 77 || wc.Flags != verbs.WithImm || !wc.Solicited || wc.ID != 3 {
			t.Fatalf("len %d: recv: %+v", n, wc)
		}
		got := append(append([]byte{}, b.buf[16384:16384+min(n, 100)]...), b.buf[20000:20000+max(0, n-100)]...)
		if !bytes.Equal(got, a.buf[:n]) {
			t.Fatalf("len %d: send moved other bytes", n)
		}
	}
}

// An ATOMIC_WRITE of a connection that may write, and no more than that, sets the word in host
// order, and leaves its neighbours alone.
func TestAtomicWrite(t *testing.T) {
	a, b := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11}), newSide(t, "b", 2, 1<<12, Config{QPN: 0x12})
	l := defaultLink
	l.access = verbs.RemoteWrite
	connect(t, a, b, l)
	r, err := b.env.Mem.Reg(b.pd, b.buf[1024:1048], verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.buf[1024:1048] {
		b.buf[1024+i] = 0xee
	}
	wr := verbs.SendWR{Op: verbs.OpAtomicWrite, Flags: verbs.Signalled, Swap: 0x1122334455667788, RemoteAddr: r.Base() + 8, RKey: r.RKey()}
	post(t, a, wr)
	settle(t, 0, a, b)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.Opcode != verbs.WCAtomicWrite || wc.ByteLen != 0 {
		t.Errorf("%+v", wc)
	}
	for at, want := range map[int]uint64{0: 0xeeeeeeeeeeeeeeee, 8: wr.Swap, 16: 0xeeeeeeeeeeeeeeee} {
		if got, err := r.Load64(at); got != want || err != nil {
			t.Errorf("the word at %d is %#x, %v; want %#x", at, got, err, want)
		}
	}
}

// Atomics return the original value and change the word in host order.
func TestAtomics(t *testing.T) {
	a, b := newPair(t)
	if err := b.mem.Store64(64, 100); err != nil {
		t.Fatal(err)
	}
	wr := verbs.SendWR{Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(8, 8)}, RemoteAddr: b.mem.Base() + 64, RKey: b.mem.RKey()}
	for _, step := range []struct {
		op                verbs.WROpcode
		compareAdd, swap  uint64
		original, written uint64
		masks             [2]uint64 // of the compare value or addend, and of the swap value
	}{
		{verbs.OpFetchAdd, 5, 0, 100, 105, [2]uint64{1, 1}},
		{verbs.OpCmpSwap, 105, 9, 105, 9, [2]uint64{}},
		{verbs.OpCmpSwap, 105, 10, 9, 9, [2]uint64{}},
		{verbs.OpFetchAdd, ^uint64(0), 0, 9, 8, [2]uint64{}},
		{verbs.OpMaskedCmpSwap, 0xa08, 0x1f00, 8, 0x1008, [2]uint64{0xf, 0xf000}},
		{verbs.OpMaskedCmpSwap, 9, 0, 0x1008, 0x1008, [2]uint64{0xf, ^uint64(0)}},
		{verbs.OpMaskedFetchAdd, 0xf00f, 0xff, 0x1008, 0x0007, [2]uint64{0x8008, ^uint64(0)}},
	} {
		wr.Op, wr.CompareAdd, wr.Swap = step.op, step.compareAdd, step.swap
		wr.CompareAddMask, wr.SwapMask = step.masks[0], step.masks[1]
		post(t, a, wr)
		settle(t, 0, a, b)
		if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.ByteLen != 8 {
			t.Fatalf("%+v", wc)
		}
		original, _ := a.mem.Load64(8)
		written, _ := b.mem.Load64(64)
		if original != step.original || written != step.written {
			t.Fatalf("%v: original %d, now %d; want %d, %d", step.op, original, written, step.original, step.written)
		}
	}
}
