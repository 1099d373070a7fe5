package pdpm

import "testing"

// An INSERT that fails before the server has the key gives the entry back, unless the key was sent.
func TestAKeyThatWasNotSentLosesItsEntry(t *testing.T) {
	x := newIndex(nil, Shape{Entries: 2, Value: 8}, 1)
	acquire := func(key uint64) *place {
		p, waited, err := x.acquire(key, true, 0)
		if waited || err != nil {
			t.Fatal(waited, err)
		}
		return p
	}
	kept := acquire(100)
	kept.sent = true
	x.release(kept)
	var at uint64
	for key := range uint64(5) {
		p := acquire(key)
		if p == nil || at != 0 && p.at != at || p.at == kept.at {
			t.Fatalf("key %d: %+v: the entry of the key before is not free", key, p)
		}
		at = p.at
		x.release(p)
		if _, known := x.look(key); known {
			t.Errorf("key %d is still known", key)
		}
	}
	if p := acquire(7); p == nil || acquire(8) != nil {
		t.Error("two entries have two keys")
	}
}
