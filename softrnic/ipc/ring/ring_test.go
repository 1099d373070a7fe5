package ring

import (
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A memory keeps its size, whoever has its file.
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

// Every bell that is rung is heard once, however many there are and however few are taken at a time.
func TestBells(t *testing.T) {
	c := NewControl(make([]byte, ControlLen))
	rung := []uint32{0, 1, 63, 64, 700, MaxBells - 1}
	for _, b := range rung {
		c.Ring(b)
		if asleep := c.Ring(b); asleep {
			t.Error("nobody sleeps")
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

// A work request that is too large for its slot is still too large for its reader.
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
