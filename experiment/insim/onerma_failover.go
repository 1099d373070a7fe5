package insim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/kvcsrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// Sizes of figure 9: the store, its clients, and the number of failures that are measured.
const (
	failoverServers = 3
	failoverThreads = 16 // clients on each host
	failoverKeys    = 64
	failoverValue   = 2000
	failoverThink   = 10 * time.Microsecond      // on average, between two GETs of a thread
	failoverBefore  = 3 * experiment.FailoverBin // GETs are counted from this time before the failure on
	// In the time failoverWarm the keys are loaded. Clients then work as long again before their GETs
	// are counted.
	failoverWarm = 400 * soloRTT
	failoverRuns = 5
)

// failoverGET is one GET. at is when it began, relative to the failure and negative before it; took
// is how long it took.
type failoverGET struct{ at, took time.Duration }

// soloFailover measures GETs of clients while the NIC of a replica dies, in failoverRuns runs.
func soloFailover(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	f := &experiment.Failover{Before: int(failoverBefore / experiment.FailoverBin)}
	var gets []failoverGET
	for seed := range uint64(failoverRuns) {
		list, err := failoverRun(ctx, l, seed)
		if err != nil {
			return err
		}
		gets = append(gets, list...)
	}
	took := make([][]time.Duration, f.Before+int(l.Span/experiment.FailoverBin))
	for _, g := range gets {
		if i := int((g.at + failoverBefore) / experiment.FailoverBin); g.at >= -failoverBefore && i < len(took) {
			took[i] = append(took[i], g.took)
		}
	}
	for _, list := range took {
		x := experiment.FailoverGETs{Count: float64(len(list)) / failoverRuns}
		if len(list) > 0 {
			var q experiment.OneRMAResult
			q.Times(list)
			x.Median, x.P99, x.Max = q.Median, q.P99, float64(slices.Max(list))/float64(soloRTT)
		}
		f.Bins = append(f.Bins, x)
	}
	f.Steady = steadyAfter(gets, l.Span)
	out.Failover = f
	return nil
}

// steadyAfter returns the time from the failure to the end of the last slow GET, in round trips. A
// GET is slow if it took over 10 % longer than the longest GET in the last third of the
// measurement. GETs that began up to 4 round trips before the failure, the time-out of a READ,
// count too.
func steadyAfter(gets []failoverGET, span time.Duration) float64 {
	var most, last time.Duration
	for _, g := range gets {
		if g.at > span*2/3 {
			most = max(most, g.took)
		}
	}
	for _, g := range gets {
		if g.at >= -4*soloRTT && g.took > most+most/10 {
			last = max(last, g.at+g.took)
		}
	}
	return float64(last) / float64(soloRTT)
}

// failoverRun crashes one server while clients execute GETs, and returns these GETs.
func failoverRun(ctx context.Context, l *experiment.OneRMA, seed uint64) (gets []failoverGET, err error) {
	r, err := newStore(ctx, l, seed)
	if err != nil {
		return nil, err
	}
	defer r.Net.Close()
	dies := clock.Time(0).Add(2*failoverWarm + failoverBefore)
	r.Net.At(dies, r.Server(0).Crash)
	for i := range l.Hosts * failoverThreads {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		r.Client(i%l.Hosts, func(c *kvcs.Client, p *kvcsrack.Port) error {
			p.Sleep(clock.Time(0).Add(failoverWarm))
			for end := dies.Add(l.Span); p.Now() < end; {
				p.Sleep(p.Now().Add(time.Duration(random.ExpFloat64() * float64(failoverThink))))
				began := p.Now()
				if _, err := c.Get(random.Uint64N(failoverKeys), nil, began.Add(time.Millisecond)); err != nil {
					return err
				}
				gets = append(gets, failoverGET{began.Sub(dies), p.Now().Sub(began)})
			}
			return nil
		})
	}
	return gets, r.Run()
}
