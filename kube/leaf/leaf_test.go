package leaf

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
	"github.com/rdmalab/rdmalab/rackfile"
)

// leafAt returns the RackLeaf of machine n on node "n"+n, whose Pod has an address.
func leafAt(n int, address string) v1alpha1.RackLeaf {
	return v1alpha1.RackLeaf{
		Spec:   v1alpha1.RackLeafSpec{Rack: "r0", Node: rackspec.Machine(n), Machine: rackspec.Machine(n), Leaf: rackspec.Leaf(n), Version: "v1"},
		Status: v1alpha1.RackLeafStatus{Address: address},
	}
}

// A description that could not be written, or that the switch has not read, is brought to it at the next attempt, though
// no RackLeaf has changed since.
func TestBringAgain(t *testing.T) {
	r, err := rackspec.Parse("r0", "hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n", 2)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "leaf") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	paths := rackfile.Paths{Dir: dir}
	cfg := Config{Rack: "r0", Node: "n0", Version: "v1", Address: netip.MustParseAddr("10.0.0.1"), Dir: dir}
	p := &program{cfg: cfg, slice: &slice{cfg: cfg, paths: paths, rack: r, known: map[string]netip.Addr{}}, begin: make(chan *slice, 1)}
	// step takes the RackLeafs as Reconcile does.
	step := func(other string) error {
		t.Helper()
		changed, err := p.take([]v1alpha1.RackLeaf{leafAt(0, ""), leafAt(1, other)})
		if err != nil {
			t.Fatal(err)
		}
		p.pending = p.pending || changed
		return p.bring(t.Context())
	}
	blocked := paths.Spec() + ".new"
	if err := os.Mkdir(blocked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := step(""); err == nil || len(p.begin) != 0 {
		t.Fatalf("a description that was not written: %v, %d switches begin", err, len(p.begin))
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := step(""); err != nil || len(p.begin) != 1 {
		t.Fatalf("the second attempt: %v, %d switches begin", err, len(p.begin))
	}
	if err := step("10.0.0.2"); err == nil {
		t.Fatal("a switch that does not answer has read the description")
	}
	var reloads atomic.Int32
	socket := paths.Socket(rackspec.Leaf(0))
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if text, err := os.ReadFile(paths.Spec()); q.URL.Path != "/rack" || err != nil || !strings.Contains(string(text), "10.0.0.2") {
			t.Errorf("%s with the description %s, %v", q.URL, text, err)
		}
		reloads.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	})}
	go func() { _ = srv.Serve(l) }() // it ends by Close
	t.Cleanup(func() { _ = srv.Close() })
	for range 2 { // what the switch has read is not brought again
		if err := step("10.0.0.2"); err != nil || reloads.Load() != 1 {
			t.Fatalf("a switch that answers: %v, %d reloads", err, reloads.Load())
		}
	}
}

// Leaves of two versions do not work with each other: the one has no address of the other, its trunk is not up, and the status
// says why. When the other has the same version, the trunk goes there.
func TestVersionsThatDiffer(t *testing.T) {
	r, err := rackspec.Parse("r0", "hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n", 2)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Rack: "r0", Node: "n0", Version: "v1", Address: netip.MustParseAddr("10.0.0.1")}
	s := &slice{cfg: cfg, rack: r, known: map[string]netip.Addr{}}
	trunk := r.Trunks()[0].Name()
	for _, c := range []struct{ version, address, why string }{
		{"v1", "10.0.0.2", ""}, {"v2", "192.0.2.2", `leaf1 has "v2", leaf0 "v1"`}, {"v1", "10.0.0.2", ""},
	} {
		other := leafAt(1, "10.0.0.2")
		other.Status.Version = c.version
		refused, changed, err := s.take([]v1alpha1.RackLeaf{leafAt(0, ""), other})
		if refused != "" || err != nil || !changed {
			t.Errorf("version %s: %q %v %v", c.version, refused, changed, err)
		}
		if got := rackspec.At(s.rack, s.own, s.known).Machines[1].Address.String(); got != c.address {
			t.Errorf("version %s: the trunk goes to %s, want %s", c.version, got, c.address)
		}
		if why := s.differs(trunk); !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("version %s: the trunk does not work because of %q, want %q", c.version, why, c.why)
		}
	}
}
