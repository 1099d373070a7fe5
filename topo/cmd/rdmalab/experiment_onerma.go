package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/onerma/socket"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/spec"
)

const (
	// besideSmall is the length of a small READ, and besideEvery the time from one to the next. One READ is
	// measured for each besideSpan of the load's time.
	besideSmall = 64
	besideEvery = 100 * time.Microsecond
	besideSpan  = 20 * time.Microsecond / 3
	// besidePatience is how long a READ may take.
	besidePatience = 10 * time.Second
	besideService  = "experiment"
)

// besideRuns is how often a load runs: the result is that of the run with the median time.
const besideRuns = 5

// OneRMA measures small READs beside one transfer between the first compute host and the memory server,
// by 1RMA or by RoCEv2. A round trip is the median of READs of 64 bytes by RoCEv2 between these hosts,
// alone, just before.
func (p *rackPlatform) OneRMA(ctx context.Context, l experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	if l.Kind != experiment.SoloBeside {
		return out, errors.ErrUnsupported
	}
	if p.rack.OneRMA == nil {
		return out, fmt.Errorf("the hosts of rack %s have no 1RMA NICs: put `onerma: {}` into the rack file", p.rack.Name)
	}
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return out, err
	}
	runs := make([]experiment.OneRMAResult, besideRuns)
	for i := range runs {
		if runs[i], err = p.besideOnce(ctx, l); err != nil {
			return out, err
		}
	}
	slices.SortFunc(runs, func(a, b experiment.OneRMAResult) int { return cmp.Compare(a.Median, b.Median) })
	return runs[besideRuns/2], nil
}

// besideOnce runs the load once.
func (p *rackPlatform) besideOnce(ctx context.Context, l experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	roce, err := p.pair(max(besideSmall, l.Large))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, roce.Close()) }()
	n := int(l.Span / besideSpan)
	alone, err := roce.beside(ctx, 0, n)
	if err != nil {
		return out, err
	}
	alone = alone[len(alone)/2:] // the first ones take longer
	slices.Sort(alone)
	rtt := alone[len(alone)/2]
	var took []time.Duration
	if l.Way == experiment.WayRoCE {
		took, err = roce.beside(ctx, l.Large, n)
	} else {
		took, err = p.besideSolo(ctx, l.Large, n)
	}
	if err != nil {
		return out, err
	}
	slices.Sort(took)
	out.Median, out.P99 = float64(took[len(took)/2])/float64(rtt), float64(took[len(took)*99/100])/float64(rtt)
	return out, nil
}

// besideSolo measures n small READs by 1RMA, while another thread READs large bytes again and again.
func (p *rackPlatform) besideSolo(ctx context.Context, large, n int) (took []time.Duration, err error) {
	c, err := socket.Open(ctx, spec.PathsOf(p.rack.Name).OneRMA(p.hosts[0]))
	if err != nil {
		return nil, withNode(err, p.hosts[0])
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	server, _, _ := p.rack.Host(p.to)
	// transfer returns a READ of n bytes with memory of its own at both ends.
	transfer := func(n int) (t socket.Transfer, err error) {
		if t.Local, err = c.Register(ctx, n, verbs.LocalWrite); err != nil {
			return t, err
		}
		t.Remote, err = c.Borrow(ctx, server.IPv4, n)
		t.Length = n
		return t, err
	}
	small, err := transfer(besideSmall)
	if err != nil {
		return nil, err
	}
	bulk, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var failed error
	defer func() {
		end()
		wg.Wait()
		err = errors.Join(err, failed)
	}()
	if large > 0 {
		t, err := transfer(large)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			for failed == nil && bulk.Err() == nil {
				if _, failed = c.Read(bulk, t); bulk.Err() != nil {
					failed = nil
				}
			}
		})
	}
	for next := time.Now(); len(took) < n; next = next.Add(besideEvery) {
		time.Sleep(time.Until(next))
		begin := time.Now()
		if _, err := c.Read(ctx, small); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// rocePair is a connection between the first compute host and the memory server.
type rocePair struct {
	server, client *nicProgram
	cq             verbs.CQ
	qp             verbs.QP
	local, remote  verbs.MR
}

// pair connects the hosts, with a region of n bytes at the server and one for small READs and n bytes
// at the client.
func (p *rackPlatform) pair(n int) (r *rocePair, err error) {
	r = new(rocePair)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.server, err = p.openNIC(p.to); err != nil {
		return r, err
	}
	if r.client, err = p.openNIC(p.hosts[0]); err != nil {
		return r, err
	}
	end := func(host *nicProgram, n int, access verbs.Access) (cq verbs.CQ, qp verbs.QP, mr verbs.MR, err error) {
		pd, err := host.AllocPD()
		if err != nil {
			return cq, qp, mr, err
		}
		if mr, err = pd.RegMR(nil, n, access); err != nil {
			return cq, qp, mr, err
		}
		if cq, err = host.CreateCQ(16); err != nil {
			return cq, qp, mr, err
		}
		qp, err = pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 1})
		return cq, qp, mr, err
	}
	var peer verbs.QP
	if _, peer, r.remote, err = end(r.server, n, verbs.LocalWrite|verbs.RemoteRead); err != nil {
		return r, err
	}
	if r.cq, r.qp, r.local, err = end(r.client, besideSmall+n, verbs.LocalWrite); err != nil {
		return r, err
	}
	deadline := r.client.Runtime().Now().Add(besidePatience)
	l, err := r.server.Manager().Listen(besideService)
	if err != nil {
		return r, err
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(deadline)
		if err == nil {
			err = req.Accept(peer, rdmacm.Params{}, nil, deadline)
		}
		accepted <- err
	}()
	_, err = r.client.Manager().Dial(r.qp, r.server.host.IPv4, besideService, rdmacm.Params{}, nil, deadline)
	return r, errors.Join(err, <-accepted, l.Close())
}

// Close ends the connection.
func (r *rocePair) Close() error {
	var errs []error
	for _, n := range []*nicProgram{r.client, r.server} {
		if n != nil && n.Context != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// beside measures n small READs while a READ of large bytes is always in flight on the same connection.
func (r *rocePair) beside(ctx context.Context, large, n int) (took []time.Duration, err error) {
	const smallID, largeID = 1, 2
	rt := r.client.Runtime()
	post := func(id uint64, off, n int) error {
		return r.qp.PostSend(verbs.SendWR{ID: id, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{r.local.SGE(off, n)}, RemoteAddr: r.remote.Addr(), RKey: r.remote.RKey()})
	}
	var began, next clock.Time
	bulk, small := false, false
	next = rt.Now()
	var wcs [4]verbs.WC
	for len(took) < n || bulk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if large > 0 && !bulk && len(took) < n {
			if err := post(largeID, besideSmall, large); err != nil {
				return nil, err
			}
			bulk = true
		}
		if now := rt.Now(); !small && len(took) < n && now >= next {
			began = now
			if err := post(smallID, 0, besideSmall); err != nil {
				return nil, err
			}
			small, next = true, next.Add(besideEvery)
		}
		wait := rt.Now().Add(besidePatience)
		if !small && len(took) < n {
			wait = next
		}
		if err := r.cq.Wait(wait); err != nil && (small || !errors.Is(err, verbs.ErrTimeout)) {
			return nil, err
		}
		got, err := r.cq.Poll(wcs[:])
		if err != nil {
			return nil, err
		}
		for i := range wcs[:got] {
			switch wc := &wcs[i]; {
			case wc.Status != verbs.Success:
				return nil, fmt.Errorf("a READ ends with %v", wc.Status)
			case wc.ID == smallID:
				took, small = append(took, rt.Now().Sub(began)), false
			default:
				bulk = false
			}
		}
	}
	return took, nil
}
