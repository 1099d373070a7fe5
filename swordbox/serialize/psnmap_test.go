package serialize

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The map gives the same PSNs as a list of all requests with unbounded numbers, over several wraps
// of the PSNs: it is right about the requests that it remembers, and it forgets only old ones.
func TestPSNMapAgreesWithModel(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 5))
		limit := 2 + r.IntN(20)
		start := int64(testPSN) + 1<<24
		var m psnMap
		m.start(wire.PSN(start&mask24), limit)
		type run struct {
			client, own, n int64
			moved          bool
		}
		model := []run{{client: start - maxBehind, own: start - maxBehind, n: maxBehind}}
		client, own := start, start
		for range 400 {
			n, moved := int64(1+r.IntN(4)), r.IntN(3) == 0
			switch {
			case moved:
				n = 1
			case r.IntN(20) == 0:
				n = int64(1 + r.IntN(1<<21)) // a READ of many packets
			}
			m.add(int(n), moved)
			model = append(model, run{client, own, n, moved})
			client += n
			if !moved {
				own += n
			}
			if m.client != wire.PSN(client&mask24) || m.own != wire.PSN(own&mask24) || m.shift() != uint32((client-own)&mask24) {
				t.Fatalf("seed %d: next %v %v, want %v %v", seed, m.client, m.own, client&mask24, own&mask24)
			}
			if m.n > limit {
				t.Fatalf("seed %d: %d segments", seed, m.n)
			}
			for range 8 {
				x := model[max(0, len(model)-1-r.IntN(30))]
				d := r.Int64N(x.n)
				checkPSNMap(t, seed, &m, x.client+d, x.own+d, x.moved, client-maxBehind)
			}
		}
		if at, _ := m.find(wire.PSN(client & mask24)); at != whereFuture {
			t.Fatalf("seed %d: the next PSN is %v", seed, at)
		}
		if _, _, ok := m.back(wire.PSN(own & mask24)); ok {
			t.Fatalf("seed %d: the next own PSN is known", seed)
		}
	}
}

func checkPSNMap(t *testing.T, seed uint64, m *psnMap, client, own int64, moved bool, oldest int64) {
	t.Helper()
	at, got := m.find(wire.PSN(client & mask24))
	switch {
	case at == whereOld && client >= oldest && m.n < m.max:
		t.Fatalf("seed %d: PSN %#x is old; the oldest is %#x", seed, client, oldest)
	case at == whereOld:
	case moved && at != whereMoved, !moved && (at != whereOwn || got != wire.PSN(own&mask24)):
		t.Fatalf("seed %d: PSN %#x is %v %#x, want %#x, moved %v", seed, client, at, got, own&mask24, moved)
	}
	if moved || at == whereOld {
		return
	}
	back, shift, ok := m.back(wire.PSN(own & mask24))
	if !ok || back != wire.PSN(client&mask24) || shift != uint32((client-own)&mask24) {
		t.Fatalf("seed %d: own PSN %#x is %#x shift %d %v, want %#x", seed, own, back, shift, ok, client&mask24)
	}
}

// The window finds each of its records, evicts the oldest one that is done, and never one that is
// not.
func TestWindowAgreesWithModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		w := window{max: 16}
		type rec struct {
			psn  wire.PSN
			span int
			done bool
		}
		var model []rec
		next := wire.PSN(testPSN)
		for range 250 {
			open := 0
			for _, x := range model {
				if !x.done {
					open++
				}
			}
			switch {
			case r.IntN(2) == 0 && w.room():
				n := 1 + r.IntN(3)
				p := w.add(next, wire.RCWriteOnly)
				p.span = n
				model = append(model, rec{psn: next, span: n})
				next = next.Add(n + r.IntN(3))
			case open > 0:
				for i := range model {
					if x := &model[i]; !x.done && r.IntN(2) == 0 {
						x.done = true
						w.finish(w.find(x.psn.Add(r.IntN(x.span))))
						break
					}
				}
			}
			oldest := w.oldest()
			for i, x := range model {
				got := w.find(x.psn)
				if kept := got != nil && got.psn == x.psn && (got.state != inFlight) == x.done; !kept && (!x.done || i >= len(model)-8) {
					t.Fatalf("seed %d: record %d of %d (%+v) is %+v", seed, i, len(model), x, got)
				}
				if !x.done {
					if oldest == nil || wire.Diff(oldest.psn, x.psn) > 0 {
						t.Fatalf("seed %d: oldest %+v, but %+v", seed, oldest, x)
					}
				}
			}
			if w.find(next.Add(3)) != nil || len(w.ring) > 16 {
				t.Fatalf("seed %d: a record that never was, or %d slots", seed, len(w.ring))
			}
		}
	}
}
