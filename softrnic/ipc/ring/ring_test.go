package ring

import (
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A memory keeps its size, even if another process has its file.
func TestMemoryIsSealed(t *testing.T) {
	fd, err := New("test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, n := range []int64{0, 4096, 16384} {
		if err := unix.Ftruncate(fd, n); err == nil {
			t.Errorf("truncated to %d", n)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("another seal was added")
	}
	b, err := Map(fd, 8192)
	if err != nil {
		t.Fatal(err)
	}
	b[8191] = 1
	if err := Unmap(b); err != nil {
		t.Fatal(err)
	}
	if _, err := New("test", 0); err == nil {
		t.Error("a memory of no bytes")
	}
}

// Every bell that is rung is returned once, however many there are and however few Take returns at
// a time.
func TestBells(t *testing.T) {
	c := NewControl(make([]byte, ControlLen))
	rung := []uint32{0, 1, 63, 64, 700, MaxBells - 1}
	for _, b := range rung {
		c.Ring(b)
		if asleep := c.Ring(b); asleep {
			t.Error("no thread sleeps")
		}
	}
	var got []uint32
	for c.Rung() {
		n := len(got)
		c.Take(2, func(b uint32) { got = append(got, b) })
		if len(got)-n > 2 {
			t.Errorf("%d at a time", len(got)-n)
		}
	}
	if !reflect.DeepEqual(got, rung) {
		t.Errorf("heard %v, rung %v", got, rung)
	}
	c.Asleep.Store(1)
	if !c.Ring(3) {
		t.Error("who sleeps must be woken")
	}
}

// A work request that is too large for its slot is too large for its reader as well.
func TestTooLargeStaysTooLarge(t *testing.T) {
	slot := make([]byte, SendSlot(2, 16))
	var wr verbs.SendWR
	PutSend(slot, &verbs.SendWR{SGL: make([]verbs.SGE, 9)}, 0)
	if _, ok := Send(slot, make([]byte, len(slot)), &wr, make([]verbs.SGE, 3)); ok && len(wr.SGL) <= 2 {
		t.Errorf("%d pieces passed", len(wr.SGL))
	}
	PutSend(slot, &verbs.SendWR{Flags: verbs.Inline, Data: make([]byte, 4000)}, 0)
	if _, ok := Send(slot, make([]byte, len(slot)), &wr, make([]verbs.SGE, 3)); ok && len(wr.Data) <= 16 {
		t.Errorf("%d bytes passed", len(wr.Data))
	}
}

// A masked atomic passes a slot with its operands and masks; what an atomic has no use for is not
// passed in their place.
func TestMasksPass(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd} {
		slot := make([]byte, SendSlot(1, 0))
		want := verbs.SendWR{
			ID: 1, Op: op, RemoteAddr: 2, RKey: 3, CompareAdd: 4, Swap: 5, CompareAddMask: 0xfedc_ba98_7654_3210, SwapMask: 0x0123_4567_89ab_cdef,
			SGL: []verbs.SGE{{Addr: 6, Length: 8, LKey: 7}},
		}
		PutSend(slot, &want, 0)
		var got verbs.SendWR
		if _, ok := Send(slot, make([]byte, len(slot)), &got, make([]verbs.SGE, 2)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v", want, got)
		}
	}
}

// A FLUSH passes a slot with its operands.
func TestFlushPasses(t *testing.T) {
	for _, f := range []verbs.Flush{{Length: 1 << 31, Global: true}, {Region: true, Persistent: true}, {Length: 7, Region: true, Global: true, Persistent: true}} {
		slot := make([]byte, SendSlot(1, 0))
		want := verbs.SendWR{ID: 1, Op: verbs.OpFlush, RemoteAddr: 2, RKey: 3, Flush: f, SGL: []verbs.SGE{}}
		PutSend(slot, &want, 0)
		var got verbs.SendWR
		if _, ok := Send(slot, make([]byte, len(slot)), &got, make([]verbs.SGE, 2)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v", want, got)
		}
	}
}

// More bells are rung again and again than Take returns at a time: each has its turn, at any place,
// and none is lost.
func TestEachBellHasItsTurn(t *testing.T) {
	for _, bells := range [][]uint32{
		{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 63, 64, 65, 127, 128, 4095, 4094, 1000, 2000}, {60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 4095},
	} {
		c := NewControl(make([]byte, ControlLen))
		served := map[uint32]int{}
		for _, b := range bells {
			c.Ring(b)
		}
		const rounds = 1000
		for range rounds {
			var again []uint32
			c.Take(8, func(b uint32) { served[b]++; again = append(again, b) })
			for _, b := range again {
				c.Ring(b)
			}
		}
		share := 8 * rounds / len(bells)
		for _, b := range bells {
			if n := served[b]; n < share-1 || n > share+1 {
				t.Errorf("of %v, bell %d was served %d times, want %d", bells, b, n, share)
			}
		}
	}
}
