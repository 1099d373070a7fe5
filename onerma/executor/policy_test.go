package executor

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// heard is a policy of another module: windows of a fixed size, and what it was told.
type heard struct {
	size  float64
	begun int
	ended [5]int // by status
}

func (h *heard) Begin(w *Window, _ bool) {
	if w.Own != nil {
		panic("a window of another policy has Own")
	}
	h.begun++
	w.Size, w.Own = h.size, h
}

func (h *heard) Ended(o *Outcome, local, remote *Window) {
	if local.Own != h || remote.Own != h {
		panic("a window that did not begin")
	}
	if o.Length < 1 || o.Now == 0 || o.TotalDelay < o.IssueDelay {
		panic("an outcome without its numbers")
	}
	h.ended[o.Status]++
}

// A policy that is replaced while transfers go on has no effect two round trips later: from then on as
// many operations are in flight as the next one says. No byte is lost, also where the network loses
// messages.
func TestPolicyIsReplaced(t *testing.T) {
	two := &heard{size: 2}
	t.Cleanup(Register("two", func(Config) Policy { return two }))
	for name, rules := range map[string][]fault.Rule{
		"calm": nil,
		"loss": {{Link: addr(1).String(), Kind: fault.Loss, Probability: 0.01}},
	} {
		t.Run(name, func(t *testing.T) {
			*two = heard{size: 2}
			r := newRack(t, 2, Config{First: 15}, rules...)
			e := r.hosts[0].exec
			const n = 4 // transfers
			for i := range n {
				x := r.transfer(0, 1, onerma.Read, i*size/n, size/n)
				x.Tag = uint64(i)
				r.start(0, x)
			}
			use := func(name string) {
				now, _ := r.net.Begin(r.hosts[0].node)
				defer r.net.End(r.hosts[0].node)
				if err := e.Use(now, name); err != nil {
					t.Fatal(err)
				}
			}
			r.run(6 * rtt)
			fast := r.share(0, 3*rtt)
			use("two")
			r.run(2 * rtt)
			if e.local.flying > 2 {
				t.Errorf("two round trips after the change, %d operations are in flight", e.local.flying)
			}
			slow := r.share(0, 3*rtt)
			use(Fixed)
			r.run(2 * rtt)
			if got := e.local.flying; got < 8 && rules == nil {
				t.Errorf("two round trips after the next change, %d operations are in flight", got)
			}
			use(Published)
			r.run(20 * time.Millisecond)
			out := make([]Result, n+1)
			got := e.Results(out)
			for _, x := range out[:got] {
				if x.Status != nic.OK || x.Moved != size/n || rules == nil && x.Retries != 0 {
					t.Errorf("%+v", x)
				}
			}
			t.Logf("%.2f of the line rate, then %.2f; %+v", fast, slow, *two)
			if got != n || !bytes.Equal(r.hosts[0].memory, r.hosts[1].memory) {
				t.Errorf("%d of %d transfers ended", got, n)
			}
			if two.begun != 2 || two.ended[nic.OK] < 4 || rules == nil && slow > fast/3 {
				t.Errorf("%.2f of the line rate, then %.2f; %+v", fast, slow, *two)
			}
		})
	}
}

// The pace of the former policy's small window does not hold back the next policy's first operations.
func TestPolicyBeginsWithoutPace(t *testing.T) {
	t.Cleanup(Register("two", func(Config) Policy { return &heard{size: 2} }))
	r := newRack(t, 2, Config{Policy: Fixed, First: 0.01})
	r.start(0, r.transfer(0, 1, onerma.Read, 0, 20_000))
	r.run(2 * rtt)
	now, _ := r.net.Begin(r.hosts[0].node)
	err := r.hosts[0].exec.Use(now, "two")
	r.net.End(r.hosts[0].node)
	if err != nil {
		t.Fatal(err)
	}
	r.run(10 * rtt)
	if out := make([]Result, 1); r.hosts[0].exec.Results(out) != 1 || out[0].Status != nic.OK {
		t.Errorf("%+v", out)
	}
}

// Windows stay within the bounds of the configuration, whatever a policy says.
func TestPolicyWithinBounds(t *testing.T) {
	zero := 0.0
	wild := []float64{1e9, -1, zero / zero, 0}
	h := &heard{}
	t.Cleanup(Register("wild", func(Config) Policy { return h }))
	for _, h.size = range wild {
		r := newRack(t, 2, Config{Policy: "wild", Most: 3, Least: 0.5})
		if got := r.one(0, r.transfer(0, 1, onerma.Write, 0, 20_000)); got.Status != nic.OK {
			t.Errorf("%g: %+v", h.size, got)
		}
		if remote, local := r.hosts[0].exec.Window(addr(1), onerma.Write); min(remote, local) < 0.5 || max(remote, local) > 3 {
			t.Errorf("%g: windows %g and %g", h.size, remote, local)
		}
	}
}

// A name that is not known is an error, and the former policy goes on.
func TestUnknownPolicy(t *testing.T) {
	r := newRack(t, 2, Config{})
	e := r.hosts[0].exec
	if err := e.Use(clock.Time(1), "two"); err == nil || e.Policy() != Published {
		t.Errorf("%v, %s", err, e.Policy())
	}
	if _, err := New(Config{RTT: rtt, Policy: "two"}, r.hosts[0].portal); err == nil {
		t.Error("an executor has an unknown policy")
	}
	if got := Policies(); !slices.Equal(got, []string{Published, Fixed, TotalDelay}) {
		t.Errorf("policies %v", got)
	}
	for _, name := range []string{"", "Two", Fixed, "a b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("policy %q is registered", name)
				}
			}()
			Register(name, func(Config) Policy { return &heard{} })
		}()
	}
}
