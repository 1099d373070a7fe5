package engine

import (
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Masked compare and swap, MAX and MIN as entries; the numbers have 1 to 8 bytes.
func TestRingMaskedAndCalculated(t *testing.T) {
	r := newRinged(t)
	q := r.add(ringA, sendring.Config{})
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(r.buf[dataAt+off:]) }
	set := func(off int, n uint64) { binary.LittleEndian.PutUint64(r.buf[dataAt+off:], n) }
	set(0, 0x7734)
	set(8, 0xffff_0000_0000_0007) // a number of 6 bytes
	set(16, 300)
	r.buf[dataAt+24], r.buf[dataAt+25] = 255, 3
	cas := r.entry(sendring.MaskedCmpSwap, sendring.Signalled, dataAt, dataAt+64, 8)
	cas.Compare, cas.CmpMask, cas.SwapAdd, cas.SwapMask = 0x1234, 0x00ff, 0xabcd, 0xff00
	highest := r.entry(sendring.Max, sendring.Signalled, dataAt+72, dataAt+8, 6)
	highest.NSGE = 3
	highest.SGL[1], highest.SGL[2] = r.sge(dataAt+16, 8), r.sge(dataAt+24, 1)
	lowest := highest
	lowest.Op, lowest.RemoteAddr = sendring.Min, r.base+dataAt+80
	lowest.SGL[2] = r.sge(dataAt+25, 1)
	at := 0
	for _, e := range []sendring.Entry{cas, highest, lowest} {
		r.put(ringA, at, e)
		at += e.Len() / sendring.BlockSize
	}
	r.bell(q, uint32(at))
	r.want("all", verbs.Success, verbs.Success, verbs.Success)
	for off, want := range map[int]uint64{0: 0xab34, 64: 0x7734, 72: 300, 80: 3} {
		if got := word(off); got != want {
			t.Errorf("at %d: %#x, want %#x", off, got, want)
		}
	}
}

// A calculation without numbers, of a number that is too long or of memory that is not registered is
// refused.
func TestRingCalculationRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *sendring.Entry)
		status verbs.Status
	}{
		"none":     {func(e *sendring.Entry) { e.NSGE = 0 }, verbs.LocQPOpErr},
		"no bytes": {func(e *sendring.Entry) { e.SGL[0].Length = 0 }, verbs.LocQPOpErr},
		"9 bytes":  {func(e *sendring.Entry) { e.SGL[0].Length = 9 }, verbs.LocQPOpErr},
		"key":      {func(e *sendring.Entry) { e.SGL[0].LKey++ }, verbs.LocProtErr},
	} {
		r := newRinged(t)
		q := r.add(ringA, sendring.Config{})
		e := r.entry(sendring.Max, sendring.Signalled, dataAt+72, dataAt+8, 8)
		c.change(&e)
		r.put(ringA, 0, e)
		r.bell(q, 1)
		r.want(name, c.status)
		if n := r.e.Counters().RingRefused; n != 1 {
			t.Errorf("%s: %d refused", name, n)
		}
	}
}
