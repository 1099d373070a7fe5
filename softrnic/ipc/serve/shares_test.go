package serve

import (
	"errors"
	"math"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// One program has at most a quarter of the places of a group, all together at most seven eighths.
// Places that are given back, or whose program has ended, are free again, and a group without
// members is forgotten.
func TestSharesOfAGroup(t *testing.T) {
	s := groupShares{most: 16}
	group, other := verbs.GID{15: 1}, verbs.GID{15: 2}
	var c [5]client
	take := func(i, n int, gid verbs.GID) (got int) {
		for ; got < n && s.take("attach", &c[i], gid) == nil; got++ {
			continue
		}
		return got
	}
	for i, want := range []int{4, 4, 4, 2, 0} {
		if got := take(i, 20, group); got != want {
			t.Errorf("program %d has %d places, want %d", i, got, want)
		}
	}
	if got := take(4, 20, other); got != 4 {
		t.Errorf("%d places of another group", got)
	}
	s.giveBack(&c[0], group)
	if got := take(4, 20, group); got != 1 {
		t.Errorf("%d places after one was given back", got)
	}
	s.forget(&c[1])
	if got := take(3, 20, group); got != 2 {
		t.Errorf("%d places for one that had two, want two more", got)
	}
	for range 3 {
		s.giveBack(&c[0], group)
	}
	if n, ok := s.used[group][&c[0]]; ok {
		t.Errorf("a program without places has %d", n)
	}
	s.forget(&c[2])
	s.forget(&c[3])
	s.forget(&c[4])
	if len(s.used) != 0 {
		t.Errorf("groups without members are remembered: %v", s.used)
	}
}

// A handle that was given out and ended is closed, one that was never given out or names another
// kind of object is invalid. A number is used again after all others, and never 0.
func TestHandles(t *testing.T) {
	o := &objects{byHandle: map[uint32]any{}}
	pd := o.put(&memory{})
	mw := o.put(&mrObject{})
	if x, err := get[*memory](o, "op", pd); x == nil || err != nil {
		t.Errorf("%v, %v", x, err)
	}
	o.drop(pd)
	for h, want := range map[uint32]error{pd: verbs.ErrClosed, mw: verbs.ErrInvalid, mw + 1: verbs.ErrInvalid} {
		if x, err := get[*memory](o, "op", h); x != nil || !errors.Is(err, want) {
			t.Errorf("handle %d: %v, %v, want %v", h, x, err, want)
		}
	}
	o.next = math.MaxUint32 - 1
	var got [3]uint32
	for i := range got {
		got[i] = o.put(&memory{})
	}
	if got != [3]uint32{math.MaxUint32, 1, 3} { // 2 is the window's
		t.Errorf("handles %v", got)
	}
}

// A program's handle of one kind is none of another kind: kinds are told apart by their methods.
func TestHandlesOfOneKind(t *testing.T) {
	c := newHouse(t).dev.Context()
	pd, err := c.AllocPD()
	must(t, err)
	mw, err := pd.AllocMW()
	must(t, err)
	dm, err := c.AllocDM(8)
	must(t, err)
	ah, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(houseIP)})
	must(t, err)
	kinds := map[string]func(o *objects, h uint32) error{
		"PD": holds[verbs.PD], "MW": holds[verbs.MW], "DM": holds[verbs.DM], "AH": holds[verbs.AH],
		"listener": holds[rdmacm.Listener], "request": holds[rdmacm.Request],
	}
	for own, x := range map[string]any{"PD": pd, "MW": mw, "DM": dm, "AH": ah, "": &memory{}} {
		o := &objects{byHandle: map[uint32]any{}}
		h := o.put(x)
		for kind, as := range kinds {
			if err := as(o, h); (err == nil) != (kind == own) {
				t.Errorf("%T as %s: %v", x, kind, err)
			}
		}
	}
}

func holds[T any](o *objects, h uint32) error {
	_, err := get[T](o, "op", h)
	return err
}

// A call waits until its event has come and is in work until its answer is queued. Two calls with
// one number break the protocol; more than may wait are refused.
func TestCallsThatWait(t *testing.T) {
	l := calls{limit: 2, working: map[uint64]struct{}{}}
	for id := range uint64(2) {
		if err := l.begin("op", id); err != nil || !l.inWork(id) {
			t.Fatalf("call %d: %v", id, err)
		}
	}
	if err := l.begin("op", 1); err == nil || errors.Is(err, verbs.ErrLimit) {
		t.Errorf("a second call 1: %v", err)
	}
	if err := l.begin("op", 2); !errors.Is(err, verbs.ErrLimit) || l.inWork(2) {
		t.Errorf("a third call: %v", err)
	}
	l.waited()
	if err := l.begin("op", 2); err != nil || !l.inWork(0) {
		t.Errorf("one call waits no more, but has no answer yet: %v", err)
	}
	l.end(0)
	if l.inWork(0) || !l.inWork(1) || !l.inWork(2) {
		t.Error("call 0 has ended, and no other")
	}
	for id := uint64(3); len(l.working) < l.limit+maxOutgoing; id++ {
		l.working[id] = struct{}{}
	}
	l.waits = 0
	if err := l.begin("op", 9999); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("as many answers wait as there is room for: %v", err)
	}
	l.end(3)
	if err := l.begin("op", 9999); err != nil {
		t.Errorf("there is room for one: %v", err)
	}
}

// The reason why an application was cut off is the first that there was.
func TestFirstReasonIsKept(t *testing.T) {
	var l link
	l.because("")
	l.because("first")
	l.because("second")
	if l.reason != "first" {
		t.Errorf("%q", l.reason)
	}
}
