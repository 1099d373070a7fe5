package insim

import (
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// For SoloRandom and SoloMixed: randomWarm is the time before transfers are counted, randomEnd the
// time in which the last ones end. In SoloMixed the share mixedSmall of the transfers has soloChunk
// bytes, and the others have mixedLarge.
const (
	randomWarm = 200 * soloRTT
	randomEnd  = 1000 * soloRTT
	mixedSmall = 0.85
	mixedLarge = 200 << 10
)

var randomSizes = [2]int{soloChunk, mixedLarge}

// randomKind draws the size of a transfer, and returns its index in randomSizes.
func randomKind(l *experiment.OneRMA, r *rand.Rand) int {
	if l.Kind == experiment.SoloMixed && r.Float64() >= mixedSmall {
		return 1
	}
	return 0
}

// randomRate returns how many transfers each host begins in a second, so that its load is the share
// l.Load of the line rate.
func randomRate(l *experiment.OneRMA) float64 {
	rate := l.Load * soloRate / 8 / soloFrame
	if l.Kind == experiment.SoloMixed {
		rate /= mixedSmall + (1-mixedSmall)*mixedLarge/soloChunk
	}
	return rate
}

// random measures transfers between all hosts: each READs from random others, or WRITEs to
// them. All transfers have 4 KB in SoloRandom; in SoloMixed some have 200 KB.
func (r *soloRack) random(l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	from, until := clock.Time(0).Add(randomWarm), clock.Time(0).Add(randomWarm+l.Span)
	for _, h := range r.hosts {
		for _, size := range randomSizes {
			f := h.flow(-1, size, false, from)
			if f.until = until; l.Write {
				f.op = onerma.Write
			}
		}
		poisson(r.net, r.rand, randomRate(l), until, func() { h.flows[randomKind(l, r.rand)].start() })
	}
	if err := r.run(randomWarm + l.Span + randomEnd); err != nil {
		return err
	}
	var took [2][]time.Duration
	retries, moved, ended := 0, 0, 0
	for _, h := range r.hosts {
		for kind, f := range h.flows {
			took[kind] = append(took[kind], f.took...)
			retries, moved, ended = retries+f.retries, moved+f.moved, ended+len(f.took)*(f.bytes/soloChunk)
		}
	}
	out.Goodput = soloGoodput(moved, l.Span) / float64(l.Hosts)
	out.Retried = float64(retries) / float64(max(1, ended+retries))
	out.Times(took[0])
	out.LargeTimes(took[1])
	return nil
}

// inFlight measures a client that has a READ of 4 KB in each of its slots, without congestion
// control.
func (r *soloRack) inFlight(l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	const warm = 100 * soloRTT
	d, err := r.hosts[0].demand(r.hosts[1], clock.Time(0).Add(warm), clock.Time(0).Add(warm+l.Span))
	if err != nil {
		return err
	}
	d.again = true
	for range l.Slots {
		d.issue()
	}
	err = r.run(warm + l.Span)
	out.Goodput = soloGoodput(d.ended[nic.OK]*soloChunk, l.Span)
	return err
}

// local measures how soon a second process of a host has its share of the host's link. Each process
// READs from a server of its own, so only the host's NIC is congested.
func (r *soloRack) local(l *experiment.OneRMA, out *experiment.OneRMAResult) (err error) {
	h := r.hosts[0]
	second := &soloHost{soloNIC: h.soloNIC, rack: r, addr: h.addr, node: h.node, keys: make(map[soloKey]*nic.Cipher)}
	if second.portal, err = h.nic.Open(2000, soloSlots); err != nil {
		return err
	}
	if second.exec, err = executor.New(executor.Config{RTT: soloRTT, First: l.First, TotalDelay: l.TotalDelay}, second.portal); err != nil {
		return err
	}
	h.m.Add(second.exec)
	h.m.Ended = func() { h.collect(); second.collect() }
	a := h.endless(1)
	if err := r.run(experiment.OneRMASecond * soloRTT); err != nil {
		return err
	}
	b := second.endless(2)
	out.Fair, err = soloFair(func() (float64, float64, error) {
		x, y := a.moved, b.moved
		err := r.run(experiment.OneRMAFairStep * soloRTT)
		return float64(a.moved - x), float64(b.moved - y), err
	})
	return err
}

// soloLongest bounds for how many round trips rates are measured.
const soloLongest = 2000

// soloFair returns after how many round trips two rates are fair; 0 means that they never were.
// step runs experiment.OneRMAFairStep round trips and returns the rates.
func soloFair(step func() (a, b float64, err error)) (float64, error) {
	for n := experiment.OneRMAFairStep; n <= soloLongest; n += experiment.OneRMAFairStep {
		a, b, err := step()
		if err != nil {
			return 0, err
		}
		if experiment.OneRMAFair(a, b) {
			return float64(n), nil
		}
	}
	return 0, nil
}
