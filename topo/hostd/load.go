package hostd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/measure"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// loadTimeout is the ACK timeout of the connections of a load, as a code: 4.3 s. It is long
	// because the links of a load may be slow: a READ that only waits behind other READs must not
	// time out and be sent again.
	loadTimeout = 20
	// loadDial is how long the making of a load's connection may take.
	loadDial = 5 * time.Second
	// loadCheck is the interval at which a load that waits looks whether its request has ended.
	loadCheck = 50 * time.Millisecond
)

// load executes a perf.Load, which READs from peers at a given rate or depth, as a job.
func (h *Host) load(r *http.Request, in perf.Load) (res perf.LoadResult, err error) {
	if err := in.Validate(); err != nil {
		return res, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	peers := make([]netip.Addr, len(in.To))
	for i, name := range in.To {
		if peers[i], err = h.address(name); err != nil {
			return res, err
		}
	}
	err = h.app.do(r, fmt.Sprintf("load of READs from %d hosts", len(peers)), func(ctx context.Context, v verbs.Context) (err error) {
		if in.RoCE {
			res, err = h.roceLoad(ctx, v, peers, &in)
			return err
		}
		n, err := h.oneRMA()
		if err != nil {
			return err
		}
		res, err = measure.RunLoad(ctx, n, h.app.hang.Wait, peers, &in)
		return err
	})
	return res, err
}

// roceLoading is a load over RoCEv2 in progress. `base` is a time of the fabric's clock, and `now` the
// same moment in nanoseconds since 1970.
type roceLoading struct {
	ctx    context.Context
	f      *remotemem.Fabric
	load   *perf.Load
	base   clock.Time
	now    int64
	flying []*roceREAD
	result perf.LoadResult
}

type roceREAD struct {
	remotemem.Op
	begun clock.Time // when it was posted
}

func (h *Host) roceLoad(ctx context.Context, v verbs.Context, peers []netip.Addr, load *perf.Load) (res perf.LoadResult, err error) {
	f, err := remotemem.New(remotemem.Config{Context: v, Buffer: load.Size})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	targets := make([]remotemem.Target, len(peers))
	for i, addr := range peers {
		t := &targets[i]
		t.Peer, err = f.AddPeer(addr, 0, func(qp verbs.QP, deadline clock.Time) error {
			region, err := memservice.Dial(h.conn, qp, addr, rdmacm.Params{Timeout: loadTimeout}, deadline)
			t.Addr, t.RKey = region.Addr, region.RKey
			return err
		})
		if err == nil {
			err = f.Open(t.Peer, f.Runtime().Now().Add(loadDial))
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return res, err
		}
	}
	r := &roceLoading{ctx: ctx, f: f, load: load, base: f.Runtime().Now(), now: time.Now().UnixNano()}
	err = r.run(targets)
	return r.result, err
}

// at converts a time in nanoseconds since 1970 to one of the fabric's clock, unix does the
// opposite.
func (r *roceLoading) at(unix int64) clock.Time     { return r.base.Add(time.Duration(unix - r.now)) }
func (r *roceLoading) unix(at clock.Time) int64     { return r.now + int64(at.Sub(r.base)) }
func (r *roceLoading) clock() (now clock.Time)      { return r.f.Runtime().Now() }
func (r *roceLoading) goesOn(until clock.Time) bool { return r.ctx.Err() == nil && r.clock() < until }

func (r *roceLoading) run(targets []remotemem.Target) error {
	begin := max(r.clock(), r.at(r.load.Begin))
	r.result.Began = r.unix(begin)
	drawn := r.load.Arrivals()
	end, last := r.at(r.load.End), r.at(r.load.Last)
	next := begin
	if r.load.Rate > 0 {
		next = begin.Add(drawn.Gap())
	}
	for r.goesOn(last) && (r.clock() < end || len(r.flying) > 0) {
		for next <= r.clock() && next < end && !r.result.Full() && (r.load.Rate > 0 || len(r.flying) < r.load.Depth) {
			if err := r.begin(targets[drawn.Peer()]); err != nil {
				return err
			}
			if r.load.Rate > 0 {
				next = next.Add(drawn.Gap())
			}
		}
		wake := clock.Min(last, r.clock().Add(loadCheck))
		if next > r.clock() && next < end {
			wake = clock.Min(wake, next)
		}
		if err := r.f.Until(wake, r.ended); err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
	}
	for _, x := range r.flying { // Close of the fabric ends them
		r.add(perf.LoadSample{At: r.unix(r.clock()), Took: r.clock().Sub(x.begun), Status: verbs.ErrTimeout.Error()})
	}
	return r.ctx.Err()
}

func (r *roceLoading) begin(t remotemem.Target) error {
	x := &roceREAD{begun: r.clock()}
	r.f.Read(&x.Op, t, 0, r.load.Size)
	err := r.f.Start(&x.Op)
	if errors.Is(err, verbs.ErrNoSpace) {
		r.add(perf.LoadSample{At: r.unix(x.begun), Status: perf.LoadShed})
		return nil
	}
	if err == nil {
		r.flying = append(r.flying, x)
	}
	return err
}

// ended adds the READs that have ended to the result. It reports whether there were any.
func (r *roceLoading) ended() bool {
	left := r.flying[:0]
	for _, x := range r.flying {
		if !x.Done {
			left = append(left, x)
			continue
		}
		s := perf.LoadSample{At: r.unix(r.clock()), Took: r.clock().Sub(x.begun)}
		if x.Status != verbs.Success {
			s.Status = x.Status.String()
		}
		r.add(s)
	}
	n := len(r.flying) - len(left)
	r.flying = left
	return n > 0
}

func (r *roceLoading) add(s perf.LoadSample) { r.result.Samples = append(r.result.Samples, s) }
