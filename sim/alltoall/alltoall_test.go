package alltoall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

func rackOf(t *testing.T, hosts, leaves, spines int) *rackfile.Rack {
	t.Helper()
	r, err := rackfile.ParseSim("test", fmt.Appendf(nil, "name: all\nsubnet: 10.64.0.0/16\nfabric: {leaves: %d, spines: %d}\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n", leaves, spines, hosts-1))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every host reaches every other one, and the result does not depend on the number of workers.
func TestAllToAll(t *testing.T) {
	l := Load{Rack: rackOf(t, 48, 6, 2), Size: 16 << 10, Flight: 3, Rate: 100e9, Seed: 1}
	var first *Report
	for _, l.Workers = range []int{0, 1, 2, 3} {
		r, err := Run(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if r.QPs != 48*47 || r.Messages != r.QPs || r.Took <= 0 || r.Resent != 0 || r.Events < uint64(r.Messages)*4*4 || (r.Windows > 0) != (l.Workers > 0) {
			t.Errorf("%+v", r)
		}
		if bytes := float64(47*l.Size) * 8 / r.Gbps; bytes < 0.99*float64(r.Took) || bytes > 1.01*float64(r.Took) {
			t.Errorf("%.2f Gb/s for %v", r.Gbps, r.Took)
		}
		if first == nil || l.Workers == 1 {
			first = r
		}
		if r.Took != first.Took || r.Events != first.Events {
			t.Errorf("%d workers: %v and %d events, want %v and %d", l.Workers, r.Took, r.Events, first.Took, first.Events)
		}
	}
}

// A word that no other host has sent to its place is found.
func TestCheck(t *testing.T) {
	l := Load{Rack: rackOf(t, 4, 2, 1), Size: 64, Flight: 1, Rate: 1e9}
	for _, c := range []struct {
		word uint64
		want string
	}{{word(1, 3), "which no other host"}, {word(2, 4), "which no other host"}, {word(9, 3), "which no other host"}, {0, "which no other host"}, {word(2, 3), ""}} {
		r, err := l.checked(c.word)
		if err != nil {
			t.Fatal(err)
		}
		if (r == nil) != (c.want == "") || r != nil && !strings.Contains(r.Error(), c.want) {
			t.Errorf("%#x: %v, want %q", c.word, r, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, l := range []Load{{Size: 12, Flight: 1}, {Size: 8}, {Flight: 1}} {
		l.Rack = rackOf(t, 4, 2, 1)
		if _, err := Run(t.Context(), l); err == nil {
			t.Errorf("%+v runs", l)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Run(ended, Load{Rack: rackOf(t, 40, 2, 1), Size: 1 << 16, Flight: 4, Rate: 1e9}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
