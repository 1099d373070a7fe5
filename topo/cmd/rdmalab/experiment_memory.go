package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/spec"
)

const (
	// ucHeaders are the bytes of a frame with a SEND over UC besides its payload: Ethernet, IPv4, UDP,
	// BTH, ICRC.
	ucHeaders = 14 + 20 + 8 + 12 + 4
	// burstFrames is how many frames each sender sends; all of them can be in flight at the same
	// time.
	burstFrames   = perf.MaxDepth
	bufferEntries = 1 << 15
	// sendTimeout is the ACK timeout of a sender's requests about its test, as a code: 4.3 s, because they
	// wait behind the frames.
	sendTimeout = 20
	bufferEvery = 2 * time.Millisecond
	// bufferQuiet is how long the number of stored frames must stay the same until the senders count as
	// having sent what they can. bufferPatience bounds a measurement.
	bufferQuiet    = 300 * time.Millisecond
	bufferPatience = 60 * time.Second
	// nativeRuns is how many runs of WRITEs or READs there are, nativeMessages how many messages of 1,500
	// bytes each has.
	nativeRuns, nativeMessages = 4, 10_000
	bufferRuleID               = steerPrefix + "buffer"
	// slowPort is the rate of the port while frames are stored: the senders connect through it, and few
	// frames leave meanwhile. fastPort is its rate while they are loaded.
	slowPort, fastPort = "10Mbit", "100Gbit"
)

// BufferRate measures how fast the switch stores frames in the memory of the server, or loads them. The
// last host is behind the slow port, the others send.
func (p *rackPlatform) BufferRate(ctx context.Context, l experiment.BufferRate) (rate float64, err error) {
	if err := p.noStores(); err != nil {
		return 0, err
	}
	if l.Native {
		return p.nativeRate(ctx, l)
	}
	if len(p.hosts) < 2 {
		return 0, errors.New("this measurement needs two compute hosts")
	}
	last := len(p.hosts) - 1
	b := &bufferRun{p: p, load: l, host: p.hosts[last]}
	if err := b.setRate(ctx, slowPort); err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() { sent <- atOnce(p.hosts[:last], func(_ int, from string) error { return b.send(from) }) }()
	stored, err := b.follow(ctx, func(i *packetbuffer.Item, quiet bool) (int, bool) { return int(i.Stored), i.Stored > 0 && quiet })
	if err == nil && l.Direction == experiment.Load {
		if err = b.setRate(ctx, fastPort); err == nil {
			stored, err = b.follow(ctx, func(i *packetbuffer.Item, _ bool) (int, bool) { return int(i.Loaded), i.Loaded+i.Lost >= i.Stored })
		}
	}
	err = errors.Join(err, p.box.set(ctx, &experiment.Switch{}, nil, "")) // without a rule, the frames in the switch leave
	failed := <-sent                                                      // a sender that has connected late fails; the frames of the others are enough
	if err != nil {
		return 0, errors.Join(err, failed)
	}
	perSecond, err := fastestHalf(stored)
	if err != nil {
		err = errors.Join(err, failed)
	}
	return perSecond * float64(l.Bytes) * 8, err
}

// nativeRate measures WRITEs or READs of the first host. It returns the rate of the fastest of
// several runs, because fastestHalf also chooses the fastest frames.
func (p *rackPlatform) nativeRate(ctx context.Context, l experiment.BufferRate) (float64, error) {
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return 0, err
	}
	cfg := perf.Config{Test: perf.WriteBW, Size: l.Bytes, Iters: nativeMessages, To: p.to}
	if l.Direction == experiment.Load {
		cfg.Test = perf.ReadBW
	}
	if l.Bytes > 1<<13 {
		cfg.Iters = nativeMessages / 10
	}
	fastest := 0.0
	for range nativeRuns {
		res, err := p.perf(p.hosts[0], &cfg)
		if err != nil {
			return 0, err
		}
		fastest = max(fastest, res.BW.MsgRate*1e6)
	}
	return fastest * float64(l.Bytes) * 8, nil
}

// perf runs a test on a host.
func (p *rackPlatform) perf(host string, cfg *perf.Config) (*perf.Result, error) {
	client, err := hostControl(p.cmd, host)
	if err != nil {
		return nil, err
	}
	ev, err := followPerf(p.cmd, client, cfg, func(perf.Progress) {})
	if err == nil && ev.Result.BW == nil {
		err = errors.New("the test has no bandwidth")
	}
	return ev.Result, err
}

// bufferRun is a measurement of the packet buffer. host is behind the slow port.
type bufferRun struct {
	p    *rackPlatform
	load experiment.BufferRate
	host string
}

// setRate gives the switch the rule, with a rate of the port, and waits for its connection to the server.
func (b *bufferRun) setRate(ctx context.Context, rate string) error {
	x := &b.p.box
	if err := x.set(ctx, &experiment.Switch{Action: experiment.Forward}, nil, ""); err != nil {
		return err
	}
	if x.free == nil {
		x.free = outlive(x.cmd)
	}
	want := program{name: spec.ProgramSwordBox, rules: append([]string(nil), x.was.rules...), ids: append([]string(nil), x.was.ids...)}
	want.ids = append(want.ids, bufferRuleID)
	want.rules = append(want.rules, fmt.Sprintf("id=%s server=%s action=buffer ring=%s mode=%s rate=%s high=64 low=32 entries=%d entry=%d depth=%d",
		bufferRuleID, b.host, b.p.to, b.load.Mode, rate, bufferEntries, b.load.Entry, b.load.Depth))
	if err := putProgram(x.cmd, want); err != nil {
		return fmt.Errorf("the switch cannot have %v: %w", want, err)
	}
	x.now = want
	for until := time.Now().Add(dialPatience); time.Now().Before(until); time.Sleep(dialEvery) {
		if i, err := b.item(); err != nil || len(i.Ring) == 1 && i.Ring[0].Up {
			return err
		}
	}
	return fmt.Errorf("the switch has no connection to %s; see `rdmalab switch buffers`", b.p.to)
}

// item asks the switch for the state of its queue.
func (b *bufferRun) item() (packetbuffer.Item, error) {
	var list []packetbuffer.Item
	if err := askBox(b.p.cmd, http.MethodGet, "/lists/buffers", nil, &list); err != nil {
		return packetbuffer.Item{}, err
	}
	for i := range list {
		if list[i].Rule == bufferRuleID {
			return list[i], nil
		}
	}
	return packetbuffer.Item{}, errors.New("the switch has no queue for the rule")
}

// send sends frames to the host behind the port, one for each receive that this host has posted.
func (b *bufferRun) send(from string) error {
	cfg := perf.Config{Test: perf.SendBW, Size: b.load.Bytes - ucHeaders, Iters: burstFrames, Depth: burstFrames, RecvSlack: burstFrames, To: b.host}
	cfg.Conn, cfg.Timeout = "uc", sendTimeout
	_, err := b.p.perf(from, &cfg)
	return err
}

// sample is a count of frames at a moment.
type sample struct {
	at time.Time
	n  int
}

// follow records each new value of a count of frames until done returns end. quiet tells done that
// the count has not changed for bufferQuiet.
func (b *bufferRun) follow(ctx context.Context, done func(i *packetbuffer.Item, quiet bool) (n int, end bool)) (list []sample, err error) {
	changed := time.Now()
	for until := changed.Add(bufferPatience); time.Now().Before(until); time.Sleep(bufferEvery) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		i, err := b.item()
		if err != nil {
			return nil, err
		}
		now := time.Now()
		n, end := done(&i, now.Sub(changed) > bufferQuiet)
		if k := len(list); k == 0 || list[k-1].n != n {
			list, changed = append(list, sample{now, n}), now
		}
		if end {
			return list, nil
		}
	}
	return nil, fmt.Errorf("the frames have not passed after %v; see `rdmalab switch buffers`", bufferPatience)
}

// fastestHalf returns the rate during the shortest time in which half of the frames were counted.
// The other half is left out: the senders do not begin together, and they may wait for other things
// than the switch.
func fastestHalf(list []sample) (rate float64, err error) {
	for i, from := range list {
		for _, to := range list[i+1:] {
			if half := (list[len(list)-1].n - list[0].n + 1) / 2; to.n-from.n >= half {
				rate = max(rate, float64(to.n-from.n)/to.at.Sub(from.at).Seconds())
				break
			}
		}
	}
	if rate == 0 || len(list) < 3 {
		return 0, fmt.Errorf("%d samples are too few for a rate", len(list))
	}
	return rate, nil
}
