package netcache

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// A GET whose READ takes long goes to the server, and the READ that comes then answers nothing. So no request stays
// in the switch for as long as a connection to a memory server takes to fail.
func TestSlowReadsAnswerNothing(t *testing.T) {
	b := newBed(t)
	b.fill()
	b.held = true
	if got := b.send(true, 40001, 7, "get foo\r\n"); len(got) != 0 || b.m.Waiting() != 1 {
		t.Fatalf("%q, %d wait", got, b.m.Waiting())
	}
	if at := b.m.Deadline(); at > b.now.Add(waitPatience) {
		t.Errorf("the deadline is %v, at %v", at, b.now)
	}
	b.left = nil
	b.now = b.now.Add(waitPatience)
	b.step(b.m.Tick)
	if got := b.texts(); len(got) != 1 || got[0] != "get foo\r\n" || b.m.Stats().Slow != 1 || b.m.Waiting() != 0 {
		t.Errorf("%q, %d wait, %+v", got, b.m.Waiting(), b.m.Stats())
	}
	k := b.m.caches[0]
	if free := len(k.waits.free); free != maxWaits-1 {
		t.Errorf("%d places are free, and a READ is in flight", free)
	}
	b.held, b.left = false, nil
	b.step(func(*pipeline.Ctx) {})
	if got := b.texts(); len(got) != 0 || len(k.waits.free) != maxWaits {
		t.Errorf("the READ makes %q, %d places are free", got, len(k.waits.free))
	}
	if got := b.send(true, 40001, 8, "get foo\r\n"); len(got) != 1 || got[0] != item {
		t.Errorf("the value does not answer any more: %q", got)
	}
}

// What a READ brings that was in flight when all values were forgotten answers nothing, also if the place has a value
// of another probe by then.
func TestForgetDuringTheRead(t *testing.T) {
	for _, again := range []bool{false, true} {
		b := newBed(t)
		b.fill()
		b.held = true
		b.send(true, 40001, 7, "get foo\r\n")
		if b.m.ClearTable("") != 1 || b.m.Tables()[0].Used != 0 {
			t.Errorf("%+v", b.m.Tables())
		}
		if again {
			b.fill()
		}
		b.held, b.left = false, nil
		b.step(func(*pipeline.Ctx) {})
		if got := b.texts(); len(got) != 1 || got[0] != "get foo\r\n" || b.m.Stats().Stale != 1 {
			t.Errorf("again %v: %q, %+v", again, got, b.m.Stats())
		}
	}
}

// GETs leave the list of those that wait in any order.
func TestWaits(t *testing.T) {
	w := newWaits()
	for i := range 4 {
		w.begin(&packetio.Frame{}, 1, i, 0, 1, b0.Add(time.Duration(i)))
	}
	at := func(n int) int { return maxWaits - 1 - n }
	if x, _ := w.late(b0); w.end(at(1)).at != 1 || w.deadline() != b0.Add(waitPatience) || x != nil {
		t.Error("the first one does not wait any more")
	}
	var left []int
	for now := b0.Add(waitPatience + 2); ; {
		x, held := w.late(now)
		if x == nil {
			break
		}
		if held {
			t.Errorf("%d was held", x.at)
		}
		left = append(left, x.at)
	}
	if !slices.Equal(left, []int{0, 2}) || w.count != 1 || w.end(at(2)) != nil || w.end(at(3)).at != 3 || w.count != 0 {
		t.Errorf("%v were late, %d wait", left, w.count)
	}
}

// The switch keeps hashes. Two keys with the same one do not get each other's value.
func TestKeysWithOneHash(t *testing.T) {
	b := newBed(t)
	b.fill()
	k := b.m.caches[0]
	p := k.index.at(k.index.find(hashOf(begin, []byte("foo"))))
	if _, ok := p.holds(b.memory[bytes.Index(b.memory, []byte("VALUE"))-cellHead:][:cellHead+len(item)], []byte("foo")); !ok {
		t.Fatal("foo has no value")
	}
	p.hash = hashOf(begin, []byte("bar"))
	if got := b.send(true, 40001, 7, "get bar\r\n"); len(got) != 1 || got[0] != "get bar\r\n" || b.m.Stats().Lost != 1 {
		t.Errorf("%q, %+v", got, b.m.Stats())
	}
}

// b0 is a time at which tests begin.
const b0 clock.Time = 1000

// vlans puts tags of VLANs into a frame.
func vlans(f []byte, list ...[2]uint16) []byte {
	var tags []byte
	for _, x := range list {
		tags = append(tags, byte(x[0]>>8), byte(x[0]), byte(x[1]>>8), byte(x[1]))
	}
	return slices.Insert(f, 12, tags...)
}

// A write in a frame with any tags counts. A GET in a VLAN, or to a group of stations, is not answered, because the
// switch does not know whose address that is; one with a priority alone is.
func TestTaggedRequests(t *testing.T) {
	group := func(f []byte) []byte { f[0] |= 1; return f }
	for name, c := range map[string]struct {
		change   func([]byte) []byte
		answered bool
	}{
		"no tag":    {func(f []byte) []byte { return f }, true},
		"priority":  {func(f []byte) []byte { return vlans(f, [2]uint16{0x8100, 0xe000}) }, true},
		"VLAN":      {func(f []byte) []byte { return vlans(f, [2]uint16{0x8100, 5}) }, false},
		"two VLANs": {func(f []byte) []byte { return vlans(f, [2]uint16{0x88a8, 5}, [2]uint16{0x8100, 6}) }, false},
		"old tags":  {func(f []byte) []byte { return vlans(f, [2]uint16{0x9100, 5}, [2]uint16{0x8100, 0}) }, false},
		"broadcast": {group, false},
	} {
		b := newBed(t)
		b.fill()
		b.step(func(x *pipeline.Ctx) {
			b.m.Take(x, 3, packetio.Frame{Data: c.change(frameOf(40001, 7, "get foo\r\n"))})
		})
		if got := b.m.Stats().Answered == 1; got != c.answered {
			t.Errorf("%s: answered %v", name, got)
		}
		b.step(func(x *pipeline.Ctx) {
			b.m.Take(x, 3, packetio.Frame{Data: c.change(frameOf(40001, 8, "set foo 0 0 1\r\nx\r\n"))})
		})
		if k := b.m.caches[0]; b.m.Stats().Writes != 1 || k.index.warm != 0 {
			t.Errorf("%s: %d writes, %d values", name, b.m.Stats().Writes, k.index.warm)
		}
	}
}
