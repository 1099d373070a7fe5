package hostd

import (
	"context"
	"net/http"
	"os"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

type none = struct{}

func (h *Host) routes() *control.Mux {
	m := &control.Mux{Gate: h.cfg.Gate, Fatal: h.cfg.Gate != nil}
	control.Handle(m, "GET "+PathStatus, func(*http.Request, none) (Status, error) { return h.Status(), nil })
	control.Handle(m, "GET "+PathCounters, func(*http.Request, none) (Counters, error) { return h.Counters(), nil })
	change := func(path string, f func() error) {
		control.Handle(m, "POST "+path, func(*http.Request, none) (Status, error) {
			err := f()
			return h.Status(), err
		})
	}
	control.Handle(m, "POST "+PathNIC, func(_ *http.Request, in NICRequest) (Status, error) {
		err := h.setNIC(in.State)
		return h.Status(), err
	})
	control.Handle(m, "POST "+PathNICFault, func(_ *http.Request, in NICFault) (NICFaultResult, error) { return h.failNIC(in) })
	control.Handle(m, "POST "+PathNICPanic, func(*http.Request, none) (none, error) { h.dev.PlantPanic(); return none{}, nil })
	change(PathCrashApp, func() error {
		h.app.crash()
		h.log.Info("application crashed")
		return nil
	})
	change(PathStartApp, h.app.start)
	change(PathRack, h.reload)
	change(PathHangApp, h.app.beginHang)
	change(PathResumeApp, h.app.resume)
	control.Handle(m, "GET "+PathTear, func(*http.Request, none) (Tear, error) { return h.tearing(), nil })
	control.Handle(m, "POST "+PathTear, func(_ *http.Request, in Tear) (Tear, error) {
		err := h.setTear(in)
		return h.tearing(), err
	})
	control.Handle(m, "DELETE "+PathTear, func(*http.Request, none) (Tear, error) { return Tear{}, h.setTear(Tear{}) })
	control.Handle(m, "POST "+PathTrace, func(_ *http.Request, in pathtrace.Request) (none, error) {
		if err := in.Check(); err != nil {
			return none{}, control.Errorf(http.StatusBadRequest, "%v", err)
		}
		h.dev.StartTrace(in.Events)
		return none{}, nil
	})
	control.Handle(m, "DELETE "+PathTrace, func(*http.Request, none) (pathtrace.Trace, error) { return h.dev.EndTrace(), nil })
	h.lists.routes(m)
	h.boundary.routes(m)
	congestionControl{h.self.Name, h.dev, h.base.Runtime(), h.log}.routes(m)
	control.HandleProfile(m, h.self.Name)
	control.HandleStream(m, "POST "+PathPerf, h.runPerf)
	control.Handle(m, "POST "+PathRelease, h.app.releaseHeld)
	control.HandleStream(m, "POST "+PathVerify, h.verify)
	control.HandleStream(m, "POST "+PathPeer, h.runPeer)
	control.Handle(m, "POST "+PathRead, h.read)
	control.Handle(m, "POST "+PathLoad, h.load)
	h.app.stores.routes(m)
	return m
}

func (h *Host) runPerf(r *http.Request, cfg perf.Config, send func(perf.Event) error) error {
	to, err := h.address(cfg.To)
	if err != nil {
		return err
	}
	var res perf.Result
	err = h.app.do(r, cfg.Test+" to "+cfg.To, func(ctx context.Context, v verbs.Context) (err error) {
		tell := func(p perf.Progress) { _ = send(perf.Event{Progress: &p}) } // if the client disconnects, ctx ends
		if cfg.Test == perf.RawBW || cfg.Test == perf.RawLat {
			self := h.rawHost()
			res, err = self.Run(ctx, to, h.resolve, cfg, tell)
			return err
		}
		if slices.Contains(perf.OneRMATests(), cfg.Test) {
			res, err = h.measureOneRMA(ctx, to, cfg, tell)
			return err
		}
		if p, ok := h.rack.Load().ByAddr(to); ok && p.Memory > 0 && cfg.Service == "" && cfg.OneSided() {
			cfg.Service = memservice.Service // a service that survives a crash of the peer's application
		}
		cfg.Counters = h.dev.Counters
		cfg.Cancelled = func() bool { return ctx.Err() != nil }
		if cfg.Held != "" {
			cfg.Hold = func() error { return h.app.holds.wait(ctx, cfg.Held, send) }
		}
		res, err = perf.Run(v, h.conn, to, cfg, tell)
		return err
	})
	if res.Test == "" {
		return err // the test did not begin
	}
	if serr := send(perf.Event{Result: &res}); serr != nil {
		return serr
	}
	return err
}

func (h *Host) verify(r *http.Request, in VerifyRequest, send func(VerifyItem) error) error {
	if len(in.To) == 0 {
		for _, p := range h.rack.Load().ByRole(rackfile.Memory) {
			if p.Name != h.self.Name {
				in.To = append(in.To, p.Name)
			}
		}
	}
	for _, name := range in.To {
		item := VerifyItem{From: h.self.Name, To: name}
		err := h.app.do(r, perf.Verify+" to "+name, func(ctx context.Context, v verbs.Context) error {
			to, err := h.address(name)
			if err != nil {
				return err
			}
			cfg := perf.Config{Test: perf.Verify, To: name, Hooks: perf.Hooks{Cancelled: func() bool { return ctx.Err() != nil }}}
			item.Result, err = perf.Run(v, h.conn, to, cfg, nil)
			return err
		})
		item.OK = err == nil
		if err != nil {
			item.Error = err.Error()
		}
		if err := send(item); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) tearing() Tear {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tear == nil {
		return Tear{}
	}
	return *h.tear
}

func (h *Host) Status() Status {
	st := Status{Name: h.self.Name, Role: h.self.Role, PID: os.Getpid(), Process: metrics.Self(), QPs: []QPStatus{}}
	if t := h.tearing(); t.Probability > 0 {
		st.Tear = &t
	}
	h.app.describe(&st)
	st.Programs, st.Shared, st.Quotas, st.Refusals = h.ipc.Clients(), h.ipc.Shared(), h.ipc.Quotas(), h.ipc.Refusals()
	nic := NICStatus{State: StateDown, MAC: h.self.MAC.String(), Port: h.port.Info(), Addresses: []string{}}
	h.dev.With(func(e *engine.Engine) {
		if e.Tables.IsUp() {
			nic.State = StateUp
		}
		nic.Link, nic.MTU = e.Port.LinkUp(), e.Config().LinkMTU
		st.Objects = e.Tables.Objects()
		for _, g := range e.Config().GIDs {
			if !g.IsZero() {
				nic.Addresses = append(nic.Addresses, g.String())
			}
		}
		rings := e.Listing().RingQPNs()
		for _, q := range e.Listing().QPAttrs() {
			qp := describeQP(&q)
			qp.Ring = slices.Contains(rings, q.QPN)
			st.QPs = append(st.QPs, qp)
		}
		c := e.Counters()
		nic.SentPkts, nic.RcvdPkts, nic.RetransPkts = c.SentPkts, c.RcvdPkts, c.RetransPkts
	})
	if err := h.dev.Err(); err != nil {
		nic.State, nic.Error = StateFailed, err.Error()
	}
	if h.solo != nil {
		s := h.solo.Status()
		st.OneRMA = &s
	}
	port := h.port.Stats()
	nic.RxDropped, nic.TxDropped = port.RxDropped, port.TxDropped
	st.NIC = nic
	return st
}

func describeQP(q *verbs.QPAttr) QPStatus {
	st := QPStatus{
		QPN: uint32(q.QPN), Type: q.Type.String(), State: q.State.String(), SendPSN: uint32(q.SendPSN), RecvPSN: uint32(q.RecvPSN),
		SendQueued: q.SendQueued, RecvQueued: q.RecvQueued, RetransPkts: q.RetransPkts,
	}
	if q.State >= verbs.StateRTR && q.RTR.DestQPN != 0 {
		st.Peer, st.PeerQPN, st.MTU = q.RTR.DestGID.String(), uint32(q.RTR.DestQPN), int(q.RTR.PathMTU)
	}
	return st
}
