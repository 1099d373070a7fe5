package nic

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// The NIC writes completions into host memory, where a program finds the slot, both delays and the status
// in the bytes, over several laps of the ring. Poll reads the same.
func TestCompletionsInMemory(t *testing.T) {
	w := newWorld(t, 2, nil)
	const slots, at = 3, 64
	p, buf := w.portal(0, 7, slots), make([]byte, at+slots*CompletionLen)
	for i := range buf {
		buf[i] = 0xee
	}
	r, err := w.nics[0].Register(register(t, w.tables[0], buf, verbs.LocalWrite))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Complete(r, at); err != nil {
		t.Fatal(err)
	}
	ne, read := binary.NativeEndian, 0
	for lap := range 10 {
		list := []*Command{w.command(onerma.Read, 7, 0, 4096), w.command(onerma.Write, 7, 64, 100), w.command(onerma.Read, 7, 0, 8)}
		list[2].Key = NewCipher(Key{1}) // refused
		for i, c := range list {
			c.Tag = uint64(1000*lap + i)
			if err := p.Issue(w.now, c); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		var out [slots + 1]Completion
		var raw [slots]Completion
		for i := range raw {
			b := buf[at+read%slots*CompletionLen:][:CompletionLen]
			last := ne.Uint64(b[24:])
			if read++; uint32(last>>32) != uint32(read) {
				t.Fatalf("completion %d has number %d", read, last>>32)
			}
			raw[i] = Completion{
				Tag: ne.Uint64(b), Slot: uint16(last >> 16), Op: onerma.Op(byte(last >> 8)), Status: Status(byte(last)), Length: int(ne.Uint64(b[16:])),
				IssueDelay: time.Duration(ne.Uint64(b[8:]) >> 32), TotalDelay: time.Duration(uint32(ne.Uint64(b[8:]))),
			}
		}
		if n := p.Poll(out[:]); n != slots || [slots]Completion(out[:slots]) != raw {
			t.Fatalf("polled %d: %+v, in memory %+v", n, out, raw)
		}
		seen := map[uint64]Status{}
		for _, c := range raw {
			if seen[c.Tag%1000] = c.Status; c.TotalDelay < rtt || c.TotalDelay > 3*rtt || int(c.Tag/1000) != lap || c.Length != list[c.Tag%1000].Length {
				t.Errorf("%+v", c)
			}
		}
		if seen[0] != OK || seen[1] != OK || seen[2] != RemoteAuthenticationFailure {
			t.Errorf("outcomes %v", seen)
		}
	}
	for i, b := range buf[:at] {
		if b != 0xee {
			t.Fatalf("byte %d before the completions was written", i)
		}
	}
	if err := w.nics[0].Deregister(r); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("deregistered while the NIC writes it: %v", err)
	}
	p.Close()
	if err := w.nics[0].Deregister(r); err != nil {
		t.Error(err)
	}
}

// A completion whose bytes were changed is left out, and names no slot of another portal.
func TestChangedCompletionIsLeftOut(t *testing.T) {
	w := newWorld(t, 2, nil)
	p, buf := w.portal(0, 7, 2), make([]byte, 2*CompletionLen)
	r, err := w.nics[0].Register(register(t, w.tables[0], buf, verbs.LocalWrite))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Complete(r, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Issue(w.now, w.command(onerma.Read, 7, 0, 8)); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	last := binary.NativeEndian.Uint64(buf[24:])
	binary.NativeEndian.PutUint64(buf[24:], last|0xffff<<16) // its slot
	var out [3]Completion
	if n := p.Poll(out[:]); n != 1 || p.Free() != 1 {
		t.Errorf("%d completions, %d slots are free", n, p.Free())
	}
}

// A command that ends after more time than 4 bytes can say in nanoseconds has a completion, whose delays Poll
// returns as they are, and its slot is free then. In host memory the delays are the greatest value.
func TestCompletionAfterLongStall(t *testing.T) {
	for _, stall := range []time.Duration{4 * time.Second, 1<<32 - 1, 1 << 32, 5 * time.Second, time.Hour} {
		w := newWorld(t, 2, nil)
		p, buf := w.portal(0, 7, 2), make([]byte, 2*CompletionLen)
		r, err := w.nics[0].Register(register(t, w.tables[0], buf, verbs.LocalWrite))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Complete(r, 0); err != nil {
			t.Fatal(err)
		}
		w.issue(p, w.command(onerma.Read, 7, 0, 8))
		w.now = w.now.Add(stall)
		w.settle()
		c := w.done(p)
		w.want(c, DispatchTimeout)
		if c.IssueDelay != stall || c.TotalDelay != stall || p.Free() != 2 {
			t.Errorf("%v: %+v, %d slots are free", stall, c, p.Free())
		}
		said := uint64(min(stall, 1<<32-1))
		if got := binary.NativeEndian.Uint64(buf[8:]); got != said<<32|said {
			t.Errorf("%v: delays %#x in memory", stall, got)
		}
		w.want(w.one(p, w.command(onerma.Read, 7, 0, 8)), OK)
	}
}

// The ring goes on in order when the number of a completion wraps, also if its places are no power of two.
func TestCompletionNumbersWrap(t *testing.T) {
	w := newWorld(t, 2, nil)
	const slots = 3
	p := w.portal(0, 7, slots)
	r, err := w.nics[0].Register(register(t, w.tables[0], make([]byte, slots*CompletionLen), verbs.LocalWrite))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Complete(r, 0); err != nil {
		t.Fatal(err)
	}
	p.memory.written = 1<<32 - slots - 1
	p.memory.read = p.memory.written
	for lap := range 3 {
		for range slots {
			w.issue(p, w.command(onerma.Read, 7, 0, 8))
		}
		w.settle()
		var out [slots + 1]Completion
		if n := p.Poll(out[:]); n != slots || p.Free() != slots {
			t.Errorf("lap %d: %d completions, %d slots are free", lap, n, p.Free())
		}
	}
}

// Memory that is no place for completions is refused.
func TestNoMemoryForCompletions(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 7, 2)
	make2 := func(n int, a verbs.Access) *Region {
		r, err := w.nics[0].Register(register(t, w.tables[0], make([]byte, n), a))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	good := make2(2*CompletionLen+8, verbs.LocalWrite)
	for _, c := range []struct {
		r  *Region
		at uint64
	}{{nil, 0}, {w.regions[1], 0}, {good, 16}, {good, 4}, {good, 1 << 63}, {make2(2*CompletionLen-1, verbs.LocalWrite), 0}, {make2(4096, verbs.RemoteRead), 0}} {
		if err := p.Complete(c.r, c.at); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := p.Issue(w.now, w.command(onerma.Read, 7, 0, 8)); err != nil {
		t.Fatal(err)
	}
	if err := p.Complete(good, 8); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("with a command in flight: %v", err)
	}
	w.settle()
	var out [1]Completion
	p.Poll(out[:])
	if err := p.Complete(good, 8); err != nil {
		t.Error(err)
	}
	if err := p.Complete(good, 0); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("a second time: %v", err)
	}
}
