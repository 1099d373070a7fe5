package statestore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// The estimate of a sketch of width w and d rows is never below the count, and above it by more than e/w
// of all counts with a probability of at most e to the power of -d (Cormode and Muthukrishnan, 2005).
func TestSketchBound(t *testing.T) {
	const width, keys, counts = 64, 2000, 100_000
	server := netip.MustParseAddr("10.0.0.3")
	for _, per := range []string{"flow", "address"} {
		for _, rows := range []int{2, 4, 8} {
			set, err := ruleSet(t, fmt.Sprintf("server=ms0 action=count store=ms1 slots=%d rows=%d per=%s", width, rows, per))
			if err != nil {
				t.Fatal(err)
			}
			l := LayoutOf(&set.All()[0])
			if l.Cells != rows*width || l.End() != uint64(rows*width*wordLen) {
				t.Fatalf("%+v", l)
			}
			r := rand.New(rand.NewPCG(1, uint64(rows)))
			zipf := rand.NewZipf(r, 1.2, 1, keys-1)
			targets, truth, memory := make([]handler.Target, keys), make([]uint64, keys), make([]uint64, l.Cells)
			for i := range targets {
				targets[i] = handler.Target{From: netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), To: wire.QPN(0x100 + i), VA: 0x7f0000000000 + uint64(i)*8}
			}
			for range counts {
				i := zipf.Uint64()
				truth[i]++
				for row := range rows {
					memory[l.Slot(server, &targets[i], row)]++
				}
			}
			over := 0
			for i := range targets {
				estimate := uint64(math.MaxUint64)
				for row := range rows {
					slot := l.Slot(server, &targets[i], row)
					if slot/width != row {
						t.Fatalf("counter %d is not in row %d", slot, row)
					}
					estimate = min(estimate, memory[slot])
				}
				if estimate < truth[i] {
					t.Fatalf("key %d has %d, estimated %d", i, truth[i], estimate)
				}
				if float64(estimate-truth[i]) > math.E/width*counts {
					over++
				}
			}
			if most := math.Exp(-float64(rows)) * keys; float64(over) > most {
				t.Errorf("per %s, %d rows: %d of %d estimates are above the bound, at most %.0f may be", per, rows, over, keys, most)
			}
		}
	}
}

func TestSketchRules(t *testing.T) {
	const base = "server=ms0 action=count "
	for text, want := range map[string]string{
		"store=ms1 rows=8":                     "",
		"store=ms1 rows=2 slots=536870912":     "",
		"store=ms1 rows=2 slots=536870913":     "more than 1073741824 counters",
		"store=ms1 rows=1 mode=published":      "",
		"store=ms1 rows=2 mode=published":      "no published form",
		"store=ms1 slots=2 mode=published":     "one counter",
		"store=ms1 per=address mode=published": "one counter",
		"store=ms1 rows=9":                     "no number from 1 to 8",
		"store=ms1 rows=2 slots=1073741824":    "more than 1073741824 counters",
		"rows=2":                               "no meaning without store",
	} {
		_, err := ruleSet(t, base+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What has a counter decides which counters a request has: with per=address its address alone, with
// per=flow its client and queue pair alone.
func TestWhatHasACounter(t *testing.T) {
	server := netip.MustParseAddr("10.0.0.3")
	a, b := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2")
	for _, rows := range []int{1, 2, 4} {
		for _, per := range []string{"flow", "address"} {
			l := layout(t, fmt.Sprintf("store=ms1 slots=65536 rows=%d per=%s", rows, per))
			for row := range rows {
				one := l.Slot(server, &handler.Target{From: a, To: 5, VA: 0x1000}, row)
				flow := l.Slot(server, &handler.Target{From: b, To: 6, VA: 0x1000}, row)
				address := l.Slot(server, &handler.Target{From: a, To: 5, VA: 0x2000}, row)
				if (one == flow) != (per == "address") || (one == address) != (per == "flow") {
					t.Errorf("per %s, row %d of %d: counters %d, of another flow %d, of another address %d", per, row, rows, one, flow, address)
				}
			}
		}
	}
}
