package swordbox_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const fourHosts = `
name: four
hosts:
  - {name: cn0, role: compute}
  - {name: cn1, role: compute}
  - {name: ms0, role: memory}
  - {name: ms1, role: memory}
`

// witness is the program with a check of its tracking: after each packet it compares the state of
// the packet's flow with the queue pairs of the NICs.
type witness struct {
	*swordbox.Program
	t      *testing.T
	rack   *simrack.Rack
	checks int
}

func (w *witness) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	f := p.Frame
	v := w.Program.Packet(c, p)
	for _, r := range w.flows(&f) {
		w.check(r, false)
	}
	return v
}

// flows returns the flows that a packet may have changed.
func (w *witness) flows(f *wire.Frame) (list []*conntrack.Flow) {
	for id := range uint32(w.Connections().MaxFlows()) {
		r := w.Connections().Flow(id)
		if r == nil {
			if id > 64 {
				break // IDs are consecutive, from 0
			}
			continue
		}
		if r.RespQPN == f.BTH.DestQP && r.Requester == f.SrcAddr() && r.Responder == f.DstAddr() {
			list = append(list, r)
			if r.Peer != nil {
				list = append(list, r.Peer)
			}
		}
	}
	return list
}

// qp returns a queue pair of a host.
func (w *witness) qp(host int, qpn wire.QPN) (verbs.QPAttr, bool) {
	for _, a := range w.rack.Host(w.rack.Spec.Hosts[host].Name).Engine().Listing().QPAttrs() {
		if a.QPN == qpn {
			return a, true
		}
	}
	return verbs.QPAttr{}, false
}

// check compares a flow with its two queue pairs, if both exist. rest says that nothing is in
// flight; then their PSNs must be equal.
func (w *witness) check(r *conntrack.Flow, rest bool) {
	w.t.Helper()
	if r.Peer == nil || r.State == conntrack.Closed || r.Port < 0 || r.Peer.Port < 0 {
		return
	}
	req, ok1 := w.qp(r.Port, r.ReqQPN)
	resp, ok2 := w.qp(r.Peer.Port, r.RespQPN)
	if !ok1 || !ok2 || req.State != verbs.StateRTS || resp.State != verbs.StateRTS {
		return
	}
	w.checks++
	switch {
	case req.RTR.DestQPN != r.RespQPN || resp.RTR.DestQPN != r.ReqQPN:
		w.t.Fatalf("flow %d pairs %#x with %#x, whose peers are %#x and %#x", r.ID, r.ReqQPN, r.RespQPN, req.RTR.DestQPN, resp.RTR.DestQPN)
	case r.PathMTU.MTU != 0 && r.PathMTU.MTU != int(req.RTR.PathMTU):
		w.t.Fatalf("flow %d: MTU %d, the queue pair's is %d", r.ID, r.PathMTU.MTU, req.RTR.PathMTU)
	case r.Synced() && (wire.Diff(resp.RecvPSN, r.Expected) > 0 || wire.Diff(r.Expected, req.SendPSN) > 0):
		w.t.Fatalf("flow %d expects %d; the requester is at %d, the responder at %d", r.ID, r.Expected, req.SendPSN, resp.RecvPSN)
	case rest && r.Synced() && (r.Expected != resp.RecvPSN || r.Expected != req.SendPSN):
		w.t.Fatalf("flow %d expects %d at rest; the requester is at %d, the responder at %d", r.ID, r.Expected, req.SendPSN, resp.RecvPSN)
	}
}

// track returns a rack whose switch tracks, with a witness.
func track(t *testing.T, opt simrack.Options) (*simrack.Rack, *witness) {
	t.Helper()
	s, err := rackfile.Parse([]byte(fourHosts))
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{t: t}
	opt.Program = func(*rackfile.Rack) (pipeline.Program, error) {
		w.Program = swordbox.New(swordbox.Config{Track: conntrack.Config{Settle: -1}})
		return w, nil
	}
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	w.rack = r
	return r, w
}

// Real NICs run every kind of traffic over links that lose, double and reorder packets: no
// connection is learnt wrongly, no expected PSN is ahead of the requester or behind the responder,
// and in the end they are equal.
func TestTrackingAgreesWithNICs(t *testing.T) {
	for _, datagrams := range []bool{true, false} {
		for _, seed := range []uint64{0, 2, 5} {
			t.Run(fmt.Sprintf("datagrams=%v/seed=%d", datagrams, seed), func(t *testing.T) {
				mtu := []int{256, 1024, 4096}[seed%3]
				opt := simrack.Options{Seed: seed + 1, Datagrams: datagrams}
				if seed%2 == 0 {
					opt.FirstPSN = samePSN
				}
				r, w := track(t, opt)
				run(t, r, mtu, seed)
				if w.checks < 500 {
					t.Errorf("only %d checks", w.checks)
				}
				for id := range uint32(256) {
					if flow := w.Connections().Flow(id); flow != nil {
						w.check(flow, true)
					}
				}
				st := w.Connections().Stats()
				t.Logf("%d checks, %+v", w.checks, st)
				if datagrams && st.Announced == 0 || !datagrams && st.Paired == 0 {
					t.Errorf("no connection was learnt: %+v", st)
				}
				if st.Spoofed+st.NoRoom+st.Damaged != 0 {
					t.Errorf("packets of honest hosts were refused: %+v", st)
				}
			})
		}
	}
}

// tests are the tests of perf that a pair of hosts can run.
var tests = []string{
	perf.WriteBW, perf.ReadBW, perf.SendBW, perf.AtomicBW, perf.WriteLat, perf.ReadLat, perf.SendLat, perf.AtomicLat, perf.Verify,
	perf.Soak,
}

// run runs every test of perf with both clients and both servers, one after the other.
func run(t *testing.T, r *simrack.Rack, mtu int, seed uint64) {
	for _, name := range []string{"ms0", "ms1"} {
		serve(t, r.Host(name))
	}
	for i, name := range []string{"cn0", "cn1"} {
		cn := r.Host(name)
		if seed >= 2 {
			cn.SetFaults([]fault.Rule{
				{Link: name, Kind: fault.Loss, Probability: 0.01},
				{Link: name, Kind: fault.Duplicate, Probability: 0.01},
				{Link: name, Kind: fault.Reorder, Probability: 0.01},
			})
		}
		for j, test := range tests {
			to := []string{"ms0", "ms1"}[(i+j)%2]
			cn.Go(test, false, func(ctx verbs.Context) {
				size := 8 << 10
				if strings.HasPrefix(test, "atomic") {
					size = 0
				}
				cfg := perf.Config{Test: test, Iters: 30, Atomics: 30, Path: perf.Path{MTU: mtu, Timeout: 10}, Size: size, Hooks: perf.Hooks{Counters: cn.Counters}, To: to}
				if _, err := perf.Run(ctx, cn.Manager(ctx), r.Host(to).Addr(), cfg, nil); err != nil {
					t.Errorf("%s %s: %v", name, test, err)
				}
			})
		}
	}
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(time.Second); err != nil {
		t.Fatal(err)
	}
}

// serve starts the memory and the perf service on a host.
func serve(t *testing.T, h *simrack.Host) {
	for _, name := range []string{memservice.Service, perf.PerfService} {
		h.Go(name, true, func(ctx verbs.Context) {
			start := memservice.New
			if name == perf.PerfService {
				start = perf.NewServer
			}
			s, err := start(ctx, h.Manager(ctx), memservice.Config{})
			if err == nil {
				err = s.Serve()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// samePSN makes all connections begin at the same PSN, shortly before it wraps.
func samePSN(*rand.Rand) wire.PSN { return 0xfffff0 }
