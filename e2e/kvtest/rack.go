package kvtest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Rack is a rack in virtual time whose memory servers run the memory service, for the tests of a
// store.
type Rack struct {
	*simrack.Rack
	T testing.TB
	// Servers are the addresses of the memory servers.
	Servers []netip.Addr
	memory  func(host string) memservice.Config
}

// NewRack makes the rack that a rack file describes; it ends with the test. memory says what a
// memory server lends.
func NewRack(t testing.TB, rackFile string, opt simrack.Options, memory func(host string) memservice.Config) *Rack {
	t.Helper()
	s, err := rackfile.Parse([]byte(rackFile))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simrack.New(s, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	g := &Rack{Rack: r, T: t, memory: memory}
	for _, h := range s.ByRole(rackfile.Memory) {
		g.Serve(h.Name)
		g.Servers = append(g.Servers, r.Host(h.Name).Addr())
	}
	return g
}

// Serve starts the memory service of a host; NewRack has done it for each memory server.
func (g *Rack) Serve(host string) {
	h := g.Host(host)
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), g.memory(host))
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			g.T.Error(host, err)
		}
	})
}

// Client runs f as an application of a host.
func (g *Rack) Client(host string, f func(ctx verbs.Context, m rdmacm.Manager) error) {
	h := g.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		if err := f(ctx, h.Manager(ctx)); err != nil {
			g.T.Errorf("client of %s: %v", host, err)
		}
	})
}

// Finish runs the rack until all clients have returned.
func (g *Rack) Finish() {
	g.T.Helper()
	if err := g.Run(); err != nil {
		g.T.Fatal(err)
	}
}

// Soon is a deadline that no test without faults reaches.
func Soon(rt verbs.Runtime) clock.Time { return rt.Now().Add(10 * time.Second) }
