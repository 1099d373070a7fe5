package scenario

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// disconnect is the beginning of a request to end an owner's connections, and of its answer: see
// the protocol of package memservice.
const disconnect = "\x01\x09"

// noFence answers the metadata server's requests to end a client's connections, without sending
// them.
type noFence struct {
	rdmacm.Manager
	kept *int
}

func (d noFence) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	if service == memservice.Service && strings.HasPrefix(string(private), disconnect) {
		*d.kept++
		return nil, &rdmacm.RejectError{Private: []byte(disconnect)}
	}
	return d.Manager.Dial(qp, to, service, p, private, deadline)
}

// hangOnWrite is a plan in which a host hangs when one of its requests is lost. The others go on
// for longer than lease and grace, with so few nodes that they get those of the host.
func hangOnWrite(e *env) *storePlan {
	p := new(storePlan).draw(e)
	d := e.draw
	p.rules, p.links = nil, "none"
	p.keys, p.clients, p.rounds, p.region, p.sizes = 4, 4, 400, 7<<10, []int{40}
	p.shares = [layout.Classes]int{60, 40}
	p.mix = [4]float64{0.2, 0.98, 0.99, 1}
	p.storeFaultAt, p.then = storeFaultAt{what: storeHang, victim: "cn0"}, nil
	p.down = time.Duration(float64(p.lease) * (2.2 + d.Float64()))
	p.loses, p.pace = d.between(20, 60), p.lease/60
	return p
}

// A client that has hung for longer than lease and grace sends a request after its lease has ended.
// If its connections were not ended, the histories show an error; if they were ended, the histories
// are linearizable.
func TestAHungClientsConnectionsEnd(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		caught, kept, seeds := 0, 0, uint64(verbstest.Tries(20, 8))
		if !fenced {
			seeds = 200 // at least 15 of these show an error; the search ends at the first
		}
		for seed := uint64(1); seed <= seeds && (fenced || caught == 0); seed++ {
			s := Scenario{Name: "clover", run: func(e *env) error {
				r := &storeRun{env: e, plan: hangOnWrite(e)}
				if !fenced {
					r.dialer = func(m rdmacm.Manager) rdmacm.Manager { return noFence{m, &kept} }
				}
				return r.run()
			}}
			r := s.Run(seed, Options{})
			if r.Err == nil {
				continue
			}
			caught++
			if fenced || caught == 1 {
				t.Logf("connections end: %v; seed %d: %s\n%.300v", fenced, seed, r.Plan, r.Err)
			}
		}
		if fenced == (caught > 0) || fenced == (kept > 0) {
			t.Errorf("connections end: %v; %d of %d seeds were caught, %d requests kept back", fenced, caught, seeds, kept)
		}
	}
}
