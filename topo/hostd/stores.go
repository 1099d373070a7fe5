package hostd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
)

// PathRun is the path of the request that makes the host run clients of a store: a POST of a
// RunRequest, whose answer is a stream of RunEvents. The paths of all other requests about stores
// begin with store.Paths.
const PathRun = "/run"

type stores struct {
	h      *Host
	app    *application
	nodes  map[string]store.Node
	meter  meter // counts operations of the clients of all stores
	checks checks
}

func (a *application) newStores() *stores {
	s := &stores{h: a.h, app: a, nodes: make(map[string]store.Node)}
	for _, d := range store.All() {
		s.nodes[d.Name] = d.Node(storeHost{a.h, a})
	}
	return s
}

func (s *stores) routes(all *control.Mux) {
	m := new(control.Mux)
	for _, d := range store.All() {
		s.nodes[d.Name].Routes(m)
		control.Handle(m, "POST "+d.Path(store.PathOp), func(r *http.Request, in store.OpRequest) (store.Answer, error) { return s.op(r, d, in) })
		control.Handle(m, "POST "+d.Path(store.PathHistory), func(r *http.Request, in store.HistoryRequest) (store.Verdict, error) {
			return s.history(r, d, in)
		})
		control.Handle(m, "POST "+d.Path(store.PathHistoryEnd), func(*http.Request, struct{}) (struct{}, error) {
			s.checks.end(d)
			return struct{}{}, nil
		})
	}
	control.HandleStream(m, "POST "+PathRun, s.run)
	all.Handle(store.Paths, s.app.awake(m))
	all.Handle(PathRun, s.app.awake(m))
}

// op executes one operation of store d. It opens a client of the store for this operation.
func (s *stores) op(r *http.Request, d *store.Store, in store.OpRequest) (out store.Answer, err error) {
	clients, err := s.nodes[d.Name].Clients(in.ClientOptions)
	if err = errors.Join(err, in.Check()); err != nil {
		return out, err
	}
	err = s.app.do(r, d.Name+" "+in.Op, func(_ context.Context, v verbs.Context) error {
		rt, list := v.Runtime(), clients(v)
		c, err := list.Open(rt.Now().Add(max(in.Patience, d.JoinPatience())))
		if err != nil {
			return errors.Join(d.NotOpened(err), list.Close())
		}
		out, err = in.Run(d, c, rt)
		return errors.Join(err, c.Close(), list.Close())
	})
	return out, store.HTTPError(err)
}

func (s *stores) each(f func(store.Node) error) (err error) {
	for _, d := range store.All() {
		err = errors.Join(err, f(s.nodes[d.Name]))
	}
	return err
}

func (s *stores) status() (out []store.Status) {
	for _, d := range store.All() {
		if st := s.nodes[d.Name].Status(); st.Up {
			st.Store = d.Name
			out = append(out, st)
		}
	}
	return out
}

// storeHost implements store.Host. A store's node uses the host through it.
type storeHost struct {
	h   *Host
	app *application
}

var _ store.OneRMAHost = storeHost{}

func (s storeHost) Name() string { return s.h.self.Name }

func (s storeHost) Address(name string) (netip.Addr, error) { return s.h.address(name) }

func (s storeHost) NameOf(addr string) string { return s.h.rack.Load().NameOf(addr) }

func (s storeHost) Manager() rdmacm.Manager { return s.app.conn }

func (s storeHost) Context() verbs.Context { return s.app.context() }

func (s storeHost) Log() *slog.Logger { return s.h.log }

func (s storeHost) OneRMA() (*onermahost.NIC, error) { return s.h.oneRMA() }

func (s storeHost) Awake() { s.app.hang.Wait() }

func (s storeHost) Service(f func() error) error {
	s.app.mu.Lock()
	defer s.app.mu.Unlock()
	if err := s.app.works(); err != nil {
		return err
	}
	return f()
}

func (s storeHost) Do(r *http.Request, job string, f func(ctx context.Context, v verbs.Context) error) error {
	return s.app.do(r, job, f)
}
