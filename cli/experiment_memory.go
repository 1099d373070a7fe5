package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
)

const (
	// ucHeaders is how many bytes a frame with a SEND over UC has besides its payload: Ethernet 14,
	// IPv4 20, UDP 8, BTH 12, immediate data 4, ICRC 4.
	ucHeaders = 14 + 20 + 8 + 12 + 4 + 4
	// burstFrames is how many frames the sender sends. The receiver posts a receive for each of
	// them before they come. With fewer receives, the sender would have to READ meanwhile how many
	// frames the receiver has got, and these READs would wait in the switch behind the frames.
	// leastFrames is how many frames must pass for a valid measurement.
	burstFrames, leastFrames = perf.MaxReceives, perf.MaxReceives / 4
	// bufferEntries is the number of entries of the ring. It has room for all frames.
	bufferEntries = 1 << 15
	// sendTimeout is the ACK timeout of the requests by which the sender controls the test at the
	// receiver, as a code: 4.3 s, because these requests wait behind the frames.
	sendTimeout = 20
	// bufferEvery is the interval at which the switch is asked for the state of the queue.
	bufferEvery = 10 * time.Millisecond
	// If the number of stored frames has not changed for bufferQuiet, the sender has sent all that
	// it can. bufferPatience is how long a step of a measurement may take.
	bufferQuiet    = 200 * time.Millisecond
	bufferPatience = 60 * time.Second
	// nativeMessages is how many WRITEs or READs a run has.
	nativeMessages = 50_000
	// bufferRuleID is the ID of the rule of action buffer. If the command is killed and leaves the
	// rule behind, a later command recognises it by its prefix; see runningProgram.
	bufferRuleID = steerPrefix + "buffer"
	// slowPort and fastPort are keys of the rule for the port of the receiving host: its rate, and
	// how many frames may wait in the switch. While frames are stored the port is slow, so that few
	// frames leave; it is fast enough that the sender can connect. While frames are loaded the port
	// is fast.
	slowPort, fastPort = "rate=1Mbit high=512 low=1", "rate=100Gbit high=1024 low=1024"
)

// BufferRate measures how fast the switch stores frames in the memory of the server, or loads them.
// The first host sends frames to the last host, whose port at the switch is slow. The switch counts
// the bytes of the frames, and the time in which they pass.
func (p *rackPlatform) BufferRate(ctx context.Context, l experiment.BufferRate) (float64, error) {
	if err := p.noStores(); err != nil {
		return 0, err
	}
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return 0, err
	}
	if l.Native {
		return p.nativeRate(ctx, l)
	}
	if len(p.hosts) < 2 {
		return 0, errors.New("this measurement needs two compute hosts")
	}
	b := &bufferRun{p: p, load: l, host: p.hosts[len(p.hosts)-1]}
	if err := b.setPort(slowPort); err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() { sent <- b.send(ctx, p.hosts[0]) }()
	moved, err := b.pass(ctx)
	err = errors.Join(err, p.box.set(ctx, &experiment.Switch{}, nil, ""), b.leave(ctx))
	failed := <-sent // send fails if its requests waited too long; enough frames may have passed all the same
	switch {
	case err != nil:
		return 0, errors.Join(err, failed)
	case moved.Bytes < uint64(leastFrames*l.Bytes) || moved.Took <= 0:
		return 0, errors.Join(fmt.Errorf("only %d bytes of frames have passed in %v: too few to measure a rate", moved.Bytes, moved.Took), failed)
	}
	return float64(moved.Bytes) * 8 / moved.Took.Seconds(), nil
}

// pass waits until the sender's frames are stored in the ring. If the load measures how fast frames
// are loaded (experiment.Load), it then waits until all are loaded. It returns what the switch has
// measured.
func (b *bufferRun) pass(ctx context.Context) (packetbuffer.Moved, error) {
	i, err := b.follow(ctx, func(i *packetbuffer.Item, quiet bool) bool { return i.Stored > 0 && quiet })
	if err != nil || b.load.Direction == experiment.Store {
		return i.Stores, err
	}
	if err := b.setPort(fastPort); err != nil {
		return packetbuffer.Moved{}, err
	}
	i, err = b.follow(ctx, func(i *packetbuffer.Item, _ bool) bool { return i.Loaded+i.Lost >= i.Stored })
	return i.Loads, err
}

// nativeRate measures WRITEs or READs of the first host, without the packet buffer.
func (p *rackPlatform) nativeRate(ctx context.Context, l experiment.BufferRate) (float64, error) {
	cfg := perf.Config{Test: perf.WriteBW, Size: l.Bytes, Iters: nativeMessages, To: p.to}
	if l.Direction == experiment.Load {
		cfg.Test = perf.ReadBW
	}
	res, err := p.bandwidth(ctx, p.hosts[0], &cfg)
	if err != nil {
		return 0, err
	}
	return res.BW.MsgRate * 1e6 * float64(l.Bytes) * 8, nil
}

func (p *rackPlatform) perf(ctx context.Context, host string, cfg *perf.Config) (*perf.Result, error) {
	client, err := hostControl(p.cmd, host)
	if err != nil {
		return nil, err
	}
	ev, err := followPerf(ctx, client, cfg, func(perf.Progress) {})
	return ev.Result, err
}

// bandwidth runs a test like perf, and returns an error if its result has no bandwidth.
func (p *rackPlatform) bandwidth(ctx context.Context, host string, cfg *perf.Config) (*perf.Result, error) {
	res, err := p.perf(ctx, host, cfg)
	if err == nil && res.BW == nil {
		err = errors.New("the result of the test has no bandwidth")
	}
	return res, err
}

// bufferRun is a measurement of the packet buffer: a rule of action buffer queues the frames that
// leave to the host with the name `host`. The frames that find no room in the switch go to the ring
// in the memory of a server.
type bufferRun struct {
	p    *rackPlatform
	load experiment.BufferRate
	host string
}

// setPort gives the switch the rule of action buffer of the measurement. keys are slowPort or
// fastPort: the keys of the rule that describe the port of the receiving host. Then setPort waits
// until the switch is connected to the server that has the ring.
func (b *bufferRun) setPort(keys string) error {
	x := &b.p.box
	x.protect()
	want := program{name: rackfile.ProgramSwordBox, rules: append([]string(nil), x.was.rules...), ids: append([]string(nil), x.was.ids...)}
	want.ids = append(want.ids, bufferRuleID)
	want.rules = append(want.rules, fmt.Sprintf("id=%s server=%s action=buffer ring=%s mode=%s %s entries=%d entry=%d depth=%d",
		bufferRuleID, b.host, b.p.to, b.load.Mode, keys, bufferEntries, b.load.Entry, b.load.Depth))
	if err := putProgram(x.cmd, want); err != nil {
		return fmt.Errorf("the switch does not accept %v: %w", want, err)
	}
	x.now = want
	for until := time.Now().Add(dialPatience); time.Now().Before(until); time.Sleep(dialEvery) {
		if i, err := b.item(); err != nil || i != nil && len(i.Ring) == 1 && i.Ring[0].Up {
			return err
		}
	}
	return fmt.Errorf("the switch has no connection to %s; see `rdmalab switch buffers`", b.p.to)
}

// item asks the switch for the state of the rule's queue of frames; nil means that there is no
// queue.
func (b *bufferRun) item() (*packetbuffer.Item, error) {
	var list []packetbuffer.Item
	if err := askBox(b.p.cmd, http.MethodGet, "/lists/buffers", nil, &list); err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Rule == bufferRuleID {
			return &list[i], nil
		}
	}
	return nil, nil
}

// leave waits until the queue has ended. After its rule was removed, the queue ends when its last
// frame has left.
func (b *bufferRun) leave(ctx context.Context) error {
	for until := time.Now().Add(bufferPatience); time.Now().Before(until); time.Sleep(bufferEvery) {
		if i, err := b.item(); err != nil || i == nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.New("frames still wait in the switch, although their rule was removed; see `rdmalab switch buffers`")
}

// send sends burstFrames frames from a host to the host with the slow port, by SENDs over UC.
func (b *bufferRun) send(ctx context.Context, from string) error {
	cfg := perf.Config{Test: perf.SendBW, Size: b.load.Bytes - ucHeaders, Iters: burstFrames, Depth: perf.MaxDepth, RecvSlack: burstFrames, To: b.host}
	cfg.Conn, cfg.Timeout = perf.ConnUC, sendTimeout
	_, err := b.p.bandwidth(ctx, from, &cfg)
	return err
}

// follow asks for the state of the queue until `done` returns true. It calls `done` with the state;
// quiet is true if the number of stored frames has not changed for bufferQuiet.
func (b *bufferRun) follow(ctx context.Context, done func(i *packetbuffer.Item, quiet bool) bool) (packetbuffer.Item, error) {
	var stored uint64
	changed := time.Now()
	for until := changed.Add(bufferPatience); time.Now().Before(until); time.Sleep(bufferEvery) {
		i, err := b.item()
		switch {
		case err == nil && i == nil:
			err = errors.New("the switch has no queue for the rule")
		case err == nil:
			err = ctx.Err()
		}
		if err != nil {
			return packetbuffer.Item{}, err
		}
		if i.Stored != stored {
			stored, changed = i.Stored, time.Now()
		}
		if done(i, time.Since(changed) > bufferQuiet) {
			return *i, nil
		}
	}
	return packetbuffer.Item{}, fmt.Errorf("the frames have not passed after %v; see `rdmalab switch buffers`", bufferPatience)
}
