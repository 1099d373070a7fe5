package netcache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

func keyed(i int) uint64 { return hashOf(begin, fmt.Appendf(nil, "key-%d", i)) }

// warmed is an index in which the key 0 is warm with digest 5, behind probe 1.
func warmed(t *testing.T) (x index, h uint64, at int) {
	x = newIndex(ways, 1, time.Second)
	h = keyed(0)
	at, fill, does := x.get(0, h, true)
	if does != Probe || fill != 1 || x.answered(0, &probe{at: at, fill: 1, hash: h}, true, true, 5, 20) != Store {
		t.Fatal(at, does)
	}
	if _, _, does := x.get(0, h, true); does != Hold {
		t.Error("the value answers before the memory has it")
	}
	x.ends(at, 1, evStored)
	if _, _, does := x.get(0, h, true); does != Read {
		t.Error("the value does not answer")
	}
	return x, h, at
}

func (x *index) is(t *testing.T, what string, at int, want State) {
	t.Helper()
	if s := x.at(at).state; s != want {
		t.Errorf("%s: %v, want %v", what, s, want)
	}
}

func TestWhatEndsAValue(t *testing.T) {
	for what, f := range map[string]func(x *index, h uint64, at int){
		"a write":              func(x *index, h uint64, _ int) { x.changes(h, evWrite) },
		"the end of a write":   func(x *index, h uint64, _ int) { x.changes(h, evDone) },
		"another value":        func(x *index, h uint64, _ int) { x.passes(h, true, 6) },
		"no value":             func(x *index, h uint64, _ int) { x.passes(h, false, 5) },
		"an older probe":       func(x *index, h uint64, at int) { x.answered(0, &probe{at: at, hash: h}, true, true, 6, 20) },
		"a READ without value": func(x *index, _ uint64, at int) { x.ends(at, 1, evLost) },
		"everything forgotten": func(x *index, _ uint64, _ int) { x.clear() },
	} {
		x, h, at := warmed(t)
		f(&x, h, at)
		x.is(t, what, at, Cold)
	}
	for what, f := range map[string]func(x *index, h uint64, at int){
		"the same value":         func(x *index, h uint64, _ int) { x.passes(h, true, 5) },
		"an older probe's":       func(x *index, h uint64, at int) { x.answered(0, &probe{at: at, hash: h}, true, true, 5, 20) },
		"another key's":          func(x *index, h uint64, _ int) { x.passes(h+1, true, 6); x.changes(h+1, evDone) },
		"an older READ's":        func(x *index, _ uint64, at int) { x.ends(at, 9, evLost) },
		"the probe's once again": func(x *index, h uint64, at int) { x.answered(0, &probe{at: at, fill: 1, hash: h}, true, true, 5, 20) },
	} {
		x, h, at := warmed(t)
		f(&x, h, at)
		x.is(t, what, at, Warm)
	}
	x, h, at := warmed(t)
	if _, _, does := x.get(clock.Time(time.Second)+1, h, true); does != Probe {
		t.Error("an old value answers")
	}
	x.is(t, "age", at, Asked)
}

// Between a probe and its answer, answers that contradict each other or the probe's, and writes, end it.
func TestWhatEndsAProbe(t *testing.T) {
	h := keyed(0)
	begun := func() (x index, at int) {
		x = newIndex(ways, 1, time.Second)
		at, _, _ = x.get(0, h, true)
		return x, at
	}
	for i, f := range []func(x *index){
		func(x *index) { x.changes(h, evWrite) },
		func(x *index) { x.changes(h, evDone) },
		func(x *index) { x.passes(h, false, 0) },
		func(x *index) { x.passes(h, true, 4); x.passes(h, true, 5) },
		func(x *index) { x.passes(h, true, 4) },
		func(x *index) { x.clear() },
	} {
		x, at := begun()
		f(&x)
		if does := x.answered(0, &probe{at: at, fill: 1, hash: h}, true, true, 5, 20); does != Forward {
			t.Errorf("%d: %v", i, does)
		}
		x.is(t, fmt.Sprint(i), at, Cold)
	}
	x, at := begun()
	x.passes(h, true, 5)
	x.passes(h, true, 5)
	if does := x.answered(0, &probe{at: at, fill: 1, hash: h}, true, true, 5, 20); does != Store {
		t.Errorf("answers that agree: %v", does)
	}
	x, at = begun()
	if _, _, does := x.get(1, h, true); does != Hold {
		t.Error("a second probe at once")
	}
	if _, fill, does := x.get(clock.Time(patience)+1, h, true); does != Probe || fill != 2 {
		t.Error("no second probe after a while")
	}
	if x.answered(0, &probe{at: at, fill: 1, hash: h}, true, true, 5, 20) != Forward || x.answered(0, &probe{at: at, fill: 2, hash: h}, true, true, 6, 20) != Forward {
		t.Error("the answers to two probes contradict each other")
	}
}

// Keys that are asked for often get the places, and keep them; others do not.
func TestHotKeysGetPlaces(t *testing.T) {
	x := newIndex(64, 4, time.Second)
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 99_999)
	hits, total := 0, 100_000
	for range total {
		if at, _, _ := x.get(0, keyed(int(z.Uint64())), true); at >= 0 {
			hits++
		}
	}
	for i := range 8 {
		if x.find(keyed(i)) < 0 {
			t.Errorf("key %d has no place", i)
		}
	}
	if x.warm != 0 || x.used > 64 {
		t.Errorf("%d warm, %d used", x.warm, x.used)
	}
	if hits < total*45/100 {
		t.Errorf("%d of %d GETs are of keys with a place", hits, total)
	}
}

// The numbers of probes do not come again, and an answer belongs to a probe once. A probe without an answer gives its
// place away after a while.
func TestProbes(t *testing.T) {
	p, numbers, now := &probes{}, numbers{next: probePorts<<16 - 2}, clock.Time(time.Second)
	seen := map[uint32]bool{}
	for i := range maxProbes + 1 {
		port, id, ok := p.begin(&numbers, probe{client: sender{id: uint16(i)}}, now)
		if ok != (i < maxProbes) {
			t.Fatal(i, ok)
		}
		if k := uint32(port)<<16 | uint32(id); ok && (seen[k] || port < firstPort) {
			t.Fatalf("%d: port %d, id %d", i, port, id)
		} else if ok {
			seen[k] = true
		}
	}
	free := 0
	for k := range seen {
		to := sender{port: uint16(k >> 16), id: uint16(k)}
		if free++; free > maxProbes/2 {
			break
		}
		other := to
		other.addr[0]++
		if _, ok := p.end(other); ok {
			t.Error("an answer to another host")
		}
		if _, ok := p.end(to); !ok {
			t.Error("an answer without a probe")
		}
		if _, ok := p.end(to); ok {
			t.Error("an answer comes twice")
		}
	}
	more := 0
	for range maxProbes {
		if _, _, ok := p.begin(&numbers, probe{}, now); ok {
			more++
		}
	}
	if more < maxProbes/4 {
		t.Errorf("%d probes have a place, of %d that are free", more, maxProbes/2)
	}
	if _, _, ok := p.begin(&numbers, probe{}, now.Add(patience+1)); !ok {
		t.Error("a probe without an answer keeps its place")
	}
}

// A request replaces one of the same client with the same number, or else the oldest of its set.
func TestAskeds(t *testing.T) {
	x := newAskeds()
	a := sender{port: 5, id: 6}
	x.add(a, Get, 1)
	x.add(a, Write, 2)
	if f := x.find(&a); f == nil || f.kind != Write || f.hash != 2 {
		t.Errorf("%+v", f)
	}
	for i := range 2 * maxAsked {
		x.add(sender{port: 7, id: uint16(i), addr: [16]byte{byte(i >> 16)}}, Get, uint64(i))
	}
	if x.find(&a) != nil {
		t.Error("the oldest request is still there")
	}
	if last := (sender{port: 7, id: uint16(2*maxAsked - 1), addr: [16]byte{byte((2*maxAsked - 1) >> 16)}}); x.find(&last) == nil {
		t.Error("the newest request is not there")
	}
}

// After everything was forgotten no former value answers, however often that happens, and a place without a value
// counts as none.
func TestForgetTakesNoTime(t *testing.T) {
	x := newIndex(MaxItems, 1, time.Second)
	warm := func(i int) (at int, fill uint64) {
		h := keyed(i)
		at, fill, does := x.get(0, h, true)
		if does != Probe || x.answered(0, &probe{at: at, fill: fill, hash: h}, true, true, 5, 20) != Store {
			t.Fatal(i, at, does)
		}
		x.ends(at, uint32(fill), evStored)
		return at, fill
	}
	const keys = 100
	for i := range keys {
		warm(i)
	}
	if n := x.clear(); n != keys || x.warm != 0 || x.used != keys {
		t.Errorf("%d values forgotten; %d warm, %d used", n, x.warm, x.used)
	}
	if n := testing.AllocsPerRun(10, func() { x.clear() }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
	at, fill := warm(0)
	for i := range keys {
		p := x.at(x.find(keyed(i)))
		if (p.state == Warm) != (i == 0) {
			t.Errorf("key %d: %v", i, p.state)
		}
	}
	for range 3 {
		x.clear()
		x.ends(at, uint32(fill), evStored) // of a WRITE that was in flight
		x.is(t, "forgotten", at, Cold)
		x.passes(keyed(0), true, 5)
		x.is(t, "the same value from the server", at, Cold)
	}
	if x.warm != 0 {
		t.Errorf("%d warm", x.warm)
	}
	at, fill, _ = x.get(0, keyed(0), true)
	x.clear()
	if q := (&probe{at: at, fill: fill, hash: keyed(0)}); x.asked(at, fill) || x.answered(0, q, true, true, 5, 20) != Forward {
		t.Error("a probe from before is still valid")
	}
}

// Numbers of probes beyond 32 bits: the WRITE of a cell has the lower bits alone, and a former value with the same
// ones does not answer.
func TestNumbersOfManyProbes(t *testing.T) {
	x, h, at := warmed(t)
	x.fills += 1 << 32
	x.clear()
	x.is(t, "a value that was forgotten much later", at, Cold)
	at, fill, does := x.get(0, h, true)
	if does != Probe || fill != 1<<32+2 || !x.asked(at, fill) || x.asked(at, fill&0xffffffff) {
		t.Errorf("probe %#x: %v", fill, does)
	}
}

// A key gets no place while no server lends memory, and takes that of a colder key. Former GETs count half after a
// while, without a walk.
func TestPlacesAreGivenToHotterKeys(t *testing.T) {
	x := newIndex(ways, 1, time.Second)
	if at, _, does := x.get(0, keyed(0), false); at != -1 || does != Forward || x.pages[0] != nil {
		t.Errorf("place %d without memory", at)
	}
	for i := range ways {
		for range 8 {
			x.get(0, keyed(i), true)
		}
	}
	newcomer := func() (at int) {
		at, _, _ = x.get(0, keyed(ways), true)
		return at
	}
	for range 8 {
		if at := newcomer(); at >= 0 {
			t.Errorf("a key gets place %d of one with more GETs", at)
		}
	}
	x.halve()
	for range 3 {
		newcomer()
	}
	if newcomer() < 0 || x.used != ways {
		t.Errorf("no place for a hotter key; %d used", x.used)
	}
	if n := int(unsafe.Sizeof(place{})); n != placeBytes {
		t.Errorf("a place takes %d bytes", n)
	}
}
