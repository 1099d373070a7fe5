package perf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Run runs the test that cfg describes, from the device of ctx. The peer is the host with the
// address `to`, which runs the services that the test needs (memservice.New, NewServer). Run calls
// progress a few times a second; nil means no reports. If Run fails, the Result has the
// measurements from before the error.
func Run(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, cfg Config, progress func(Progress)) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{Test: cfg.Test}, err
	}
	cfg = cfg.withDefaults()
	res := Result{Test: cfg.Test, From: ctx.Device().Name, To: cfg.To, Config: cfg}
	if res.To == "" {
		res.To = to.String()
	}
	var before metrics.NIC
	if cfg.Counters != nil {
		before = cfg.Counters()
	}
	p := plans[cfg.Test](&cfg)
	s, err := open(ctx, d, to, cfg, p, progress)
	if err != nil {
		return res, fmt.Errorf("perf %s: %w", cfg.Test, err)
	}
	res.MTU, res.QPN, res.PeerQPN = s.far.mtu, s.far.qpn, s.far.peerQPN
	s.slots(p.slot)
	err = p.run(s, &res)
	if err != nil {
		err = fmt.Errorf("perf %s: %w", cfg.Test, err)
	}
	err = errors.Join(err, s.close())
	if cfg.Counters != nil {
		after := cfg.Counters()
		res.Counters = diff(&before, &after)
	}
	return res, err
}

// plan says what a test of perf needs: the resources on both sides, and the function that runs it.
type plan struct {
	local   int     // bytes of local memory
	slot    int     // size of a slot of local memory, in bytes
	bytes   int     // bytes of a region at the server for this run alone
	request request // the server's part in a SEND test; zero for other tests
	run     func(*session, *Result) error
}

// plans has a function for each test that makes its plan.
var plans = map[string]func(*Config) plan{
	WriteBW: (*Config).planWriteBW, ReadBW: (*Config).planReadBW, SendBW: (*Config).planSendBW, AtomicBW: (*Config).planAtomic,
	WriteLat: (*Config).planLat, ReadLat: (*Config).planLat, AtomicLat: (*Config).planAtomic, SendLat: (*Config).planSendLat,
	Contend: planOneWord((*session).contend), Locks: planOneWord((*session).locks), Verify: (*Config).planVerify, Soak: (*Config).planSoak,
}

// diff returns the increments of the counters that have changed.
func diff(before, after *metrics.NIC) map[string]uint64 {
	out := make(map[string]uint64)
	old := metrics.Samples(before)
	for i, c := range metrics.Samples(after) {
		if d := c.Value - old[i].Value; d != 0 {
			out[c.Name] = d
		}
	}
	return out
}
