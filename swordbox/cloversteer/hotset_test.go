package cloversteer

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// sameSet returns n keys whose entries share a set of the table of warm keys.
func sameSet(n int) (keys []id) {
	for x := uint64(1); len(keys) < n; x++ {
		if k := (id{x, 1}); int(k.hash()>>40)%warmSets == 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// A key becomes warm only when it was requested more often than the rarest key of its full set,
// whose entry it takes.
func TestKeyThatBecomesWarm(t *testing.T) {
	var h hot
	h.begin(1 << 20)
	keys := sameSet(warmWays + 1)
	late, rarest := keys[warmWays], keys[0]
	for i, k := range keys[:warmWays] {
		for range 10 + i {
			h.count(0, k, false)
		}
	}
	for n := range 10 {
		if h.count(0, late, true) != nil || h.find(late) != nil || h.find(rarest) == nil {
			t.Fatalf("after %d requests the key is warm; the rarest has 10", n+1)
		}
	}
	w := h.count(0, late, true)
	if w == nil || w != h.find(late) || w.id != late || w.appends != 1 || w.reads != 0 || h.find(rarest) != nil {
		t.Fatalf("after 11 requests: %+v; the rarest: %+v", w, h.find(rarest))
	}
	for _, k := range keys[1:warmWays] {
		if h.find(k) == nil {
			t.Errorf("key %d is not warm any more", k.n)
		}
	}
}

// Counts are halved after every decay requests, neither sooner nor later, and the keys are ranked
// then.
func TestWhenCountsAreHalved(t *testing.T) {
	const decay = 10
	var h hot
	h.begin(decay)
	keys := sameSet(2)
	count := func(k id, n int) {
		for range n {
			h.count(0, k, false)
		}
	}
	for round, want := range []uint32{5, 7, 8} { // 10 / 2, (5 + 10) / 2, (7 + 10) / 2
		if count(keys[0], decay-1); h.n != decay-1 {
			t.Fatalf("round %d: %d requests since the last halving", round, h.n)
		}
		if count(keys[0], 1); h.find(keys[0]).estimate != want || h.n != 0 {
			t.Errorf("round %d: the estimate is %d, want %d", round, h.find(keys[0]).estimate, want)
		}
	}
	h.every, h.ranked = rankEvery, 0 // the next ranking by itself is far away
	count(keys[1], decay)
	first := rules.Rule{Hot: 2}
	if !h.steers(&first, 0, h.find(keys[1])) {
		t.Errorf("the second key is not ranked: %+v", h.find(keys[1]))
	}
}

// Rates are measured over whole intervals, with a ranking at the earliest; a listing measures, too.
func TestWhenRatesAreMeasured(t *testing.T) {
	var h hot
	h.begin(1 << 20)
	k := sameSet(1)[0]
	at := func(d time.Duration) clock.Time { return clock.Time(0).Add(d) }
	for range rankFirst - 1 {
		h.count(at(rateEvery), k, false)
	}
	if r := h.find(k).rate; r != 0 {
		t.Errorf("before the first ranking the rate is %v", r)
	}
	if h.count(at(rateEvery), k, false); h.find(k).rate != rankFirst {
		t.Errorf("the rate is %v, want %d in a second", h.find(k).rate, rankFirst)
	}
	h.measure(at(2*rateEvery - 1))
	if r := h.find(k).rate; r != rankFirst {
		t.Errorf("within the second interval the rate is %v", r)
	}
	if h.measure(at(2 * rateEvery)); h.find(k).rate != 0 {
		t.Errorf("without requests the rate is %v", h.find(k).rate)
	}
}
