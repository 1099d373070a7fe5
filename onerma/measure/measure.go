package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Defaults; the fields are those of perf.Config.
const (
	defaultSize     = 64 << 10
	defaultLatSize  = 8
	defaultIters    = 5000
	defaultLatIters = 1000
	defaultDepth    = 128
	defaultPatience = 30 * time.Second
	slots           = 256 // operations in flight
	mostUnsignaled  = 16  // the largest default of SignalEvery, as in tests over queue pairs
)

type run struct {
	ctx   context.Context
	n     *host.NIC
	proc  *host.Process
	cfg   *perf.Config
	op    onerma.Op
	loan  *host.Loan
	local *host.Region
	buf   []byte
	pat   perf.Pattern
	perf.Teller
	calls  []host.Call
	posts  []host.Posting
	result *perf.Result
}

// Run runs a test, one of perf.OneRMATests, against the host with address addr, whose memory it
// borrows. It calls tell with its progress, at most five times a second. If Run returns an error,
// the Result has the measurements from before the error. gate becomes host.ProcessConfig.Gate.
func Run(
	ctx context.Context, n *host.NIC, gate func(), addr netip.Addr, cfg perf.Config, tell func(perf.Progress),
) (res perf.Result, err error) {
	lat := strings.HasSuffix(cfg.Test, "_lat")
	size, iters, depth := defaultSize, defaultIters, defaultDepth
	if lat {
		size, iters, depth = defaultLatSize, defaultLatIters, 1
		cfg.Depth, cfg.SignalEvery = 1, 1 // every message has a completion, as in latency tests over queue pairs
	}
	cfg.Size, cfg.Iters, cfg.Depth = cmp.Or(cfg.Size, size), cmp.Or(cfg.Iters, iters), cmp.Or(cfg.Depth, depth)
	cfg.SignalEvery = cmp.Or(cfg.SignalEvery, max(1, min(cfg.Depth/4, mostUnsignaled)))
	cfg.Patience, cfg.Seed = cmp.Or(cfg.Patience, defaultPatience), cmp.Or(cfg.Seed, 1)
	res = perf.Result{Test: cfg.Test, To: cfg.To, Config: cfg, MTU: onerma.MaxOp}
	if err := check(&cfg); err != nil {
		return res, err
	}
	p, err := n.Open(host.ProcessConfig{Slots: slots, Gate: gate})
	if err != nil {
		return res, err
	}
	defer p.Close()
	// When ctx ends, the process ends, and with it all waits for messages.
	defer context.AfterFunc(ctx, p.Close)()
	r := &run{ctx: ctx, n: n, proc: p, cfg: &cfg, op: onerma.Read, pat: perf.Pattern{Seed: cfg.Seed}, Teller: perf.Teller{Now: n.Now, Call: tell}, result: &res, calls: make([]host.Call, cfg.Depth)}
	if cfg.Test == perf.OneRMAWriteBW || cfg.Test == perf.OneRMAWriteLat {
		r.op = onerma.Write
	}
	if r.loan, err = host.Borrow(ctx, p, addr, cfg.Size*cfg.Depth); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.loan.Close()) }()
	r.buf = make([]byte, cfg.Size*cfg.Depth)
	if r.local, err = p.Register(r.buf, verbs.LocalWrite); err != nil {
		return res, err
	}
	before := n.Stats()
	if lat {
		err = r.latency()
	} else {
		err = r.bandwidth()
	}
	res.Counters = grown(&before, n)
	return res, err
}

// check returns an error if Run cannot do the test with these parameters.
func check(c *perf.Config) error {
	switch {
	case c.Size < 1 || c.Size > perf.MaxSize || c.Iters < 1 || c.Iters > perf.MaxIters || c.Depth < 1 || c.Depth > perf.MaxDepth/4 || c.SignalEvery < 1 || c.SignalEvery > c.Depth:
		return fmt.Errorf("%s: size %d, iters %d, depth %d, CQ moderation %d: want 1 to %d, %d, %d, the depth", c.Test, c.Size, c.Iters, c.Depth, c.SignalEvery,
			perf.MaxSize, perf.MaxIters, perf.MaxDepth/4)
	case c.Size*c.Depth > host.MaxLoan:
		return fmt.Errorf("%s: %d messages of %d bytes in flight need more than %d bytes: give a smaller --size or --tx-depth", c.Test, c.Depth, c.Size, host.MaxLoan)
	}
	return nil
}

// grown returns the counters of NIC n that have grown since the counters `before` were read, and by
// how much.
func grown(before *nic.Stats, n *host.NIC) map[string]uint64 {
	after := n.Stats()
	old := before.Samples()
	out := make(map[string]uint64)
	for i, s := range after.Samples() {
		if d := s.Value - old[i].Value; d > 0 {
			out[s.Name] = d
		}
	}
	return out
}

// slot returns the bytes of the message in flight with number i, from 0 to Depth-1.
func (r *run) slot(i int) []byte { return r.buf[i*r.cfg.Size:][:r.cfg.Size] }

// begin starts messages first to last-1, whose requests the NIC sends together. It returns how many
// were started.
func (r *run) begin(op onerma.Op, first, last int) (int, error) {
	r.posts = r.posts[:0]
	for k := first; k < last; k++ {
		i := k % r.cfg.Depth
		at := uint64(i * r.cfg.Size)
		r.posts = append(r.posts, host.Posting{Call: &r.calls[i], Transfer: host.Transfer{
			Op: op, Remote: r.loan.Remote, Offset: at, Length: r.cfg.Size, Local: r.local, LocalOffset: at,
		}})
	}
	return r.proc.StartAll(r.posts, r.deadline())
}

// deadline returns the time until which a message that begins now is tried.
func (r *run) deadline() clock.Time { return r.n.Now().Add(r.cfg.Patience) }

// end waits until message k has ended, and returns its error.
func (r *run) end(k int) error {
	_, err := r.calls[k%r.cfg.Depth].Wait()
	if err != nil {
		return fmt.Errorf("message %d: %w", k, err)
	}
	return r.ctx.Err()
}

// all runs messages 0 to messages-1 with at most Depth in flight. It calls the function `before`
// when a message is about to begin, and the function `after` when the message has ended and no
// error has occurred. Both functions may be nil.
func (r *run) all(op onerma.Op, messages int, before func(k int), after func(k int) error) (err error) {
	begun, ended := 0, 0
	for {
		if last := min(messages, ended+r.cfg.Depth); err == nil && begun < last {
			for k := begun; k < last && before != nil; k++ {
				before(k)
			}
			var n int
			n, err = r.begin(op, begun, last)
			begun += n
		}
		if ended == begun {
			return err
		}
		// Further messages begin when SignalEvery messages have ended, not after each one: a test
		// over queue pairs also gets a completion only of every n-th message.
		last := min(begun, ended+r.cfg.SignalEvery) - 1
		err = cmp.Or(err, r.calls[last%r.cfg.Depth].Await())
		for first := ended; ended < begun && (ended == first || r.calls[ended%r.cfg.Depth].Done()); ended++ {
			werr := r.end(ended)
			if werr == nil && err == nil && after != nil {
				werr = after(ended)
			}
			err = cmp.Or(err, werr)
		}
		if messages == r.cfg.Iters { // no progress while a test writes the memory beforehand or reads it back to verify it
			r.Tell(r.cfg.Test, ended, messages)
		}
	}
}

// bandwidth runs messages with Depth of them in flight.
func (r *run) bandwidth() error {
	before, after, err := r.verifying()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := r.all(r.op, r.cfg.Iters, before, after); err != nil {
		return err
	}
	took := time.Since(start)
	r.result.Elapsed = took
	mib := float64(r.cfg.Size) * float64(r.cfg.Iters) / took.Seconds() / (1 << 20)
	r.result.BW = &perf.Bandwidth{
		Bytes: r.cfg.Size, Iters: r.cfg.Iters, Peak: mib, Average: mib, MsgRate: float64(r.cfg.Iters) / took.Seconds() / 1e6, TxDepth: r.cfg.Depth, Signaled: r.cfg.SignalEvery,
	}
	if r.cfg.Verify && r.op == onerma.Write {
		return r.readBack(r.cfg.Iters)
	}
	return nil
}

// latency runs one message at a time.
func (r *run) latency() error {
	before, after, err := r.verifying()
	if err != nil {
		return err
	}
	var took perf.Latencies
	begun := time.Now()
	var start time.Time
	err = r.all(r.op, r.cfg.Iters, func(k int) { before(k); start = time.Now() }, func(k int) error {
		took.Record(time.Since(start))
		if r.cfg.Verify && r.op == onerma.Write {
			return r.readBack(k + 1)
		}
		return after(k)
	})
	r.result.Elapsed = time.Since(begun)
	if took.Count() > 0 {
		r.result.Lat = took.Summary(r.cfg.Size, took.Count())
	}
	return err
}

// verifying returns the functions to call before and after each message so that every byte is
// compared. If the test does not verify, they do nothing. For a test of READs, verifying first
// writes the memory that the READs will read.
func (r *run) verifying() (before func(int), after func(int) error, err error) {
	before, after = func(int) {}, func(int) error { return nil }
	if !r.cfg.Verify {
		return before, after, nil
	}
	if r.op == onerma.Write {
		return func(k int) { r.pat.Fill(r.slot(k%r.cfg.Depth), uint64(k)) }, after, nil
	}
	fill := func(k int) { r.pat.Fill(r.slot(k), uint64(k)) }
	if err := r.all(onerma.Write, r.cfg.Depth, fill, nil); err != nil {
		return nil, nil, fmt.Errorf("write what is to be read: %w", err)
	}
	return func(k int) { clear(r.slot(k % r.cfg.Depth)) }, func(k int) error { return r.compare(k, k%r.cfg.Depth) }, nil
}

// readBack reads the memory back after `written` WRITEs, and compares each slot with the last
// message that was written to it.
func (r *run) readBack(written int) error {
	slots := min(written, r.cfg.Depth)
	last := func(i int) int { // the number of the last message that was written to slot i
		k := (written - 1) / r.cfg.Depth * r.cfg.Depth
		if k+i >= written {
			k -= r.cfg.Depth
		}
		return k + i
	}
	return r.all(onerma.Read, slots, func(i int) { clear(r.slot(i)) }, func(i int) error { return r.compare(i, last(i)) })
}

// compare compares the bytes in the buffer of message k with pattern number want.
func (r *run) compare(k, want int) error {
	if at := r.pat.Check(r.slot(k%r.cfg.Depth), uint64(want)); at >= 0 {
		return fmt.Errorf("%s: message %d: byte %d is wrong", r.cfg.Test, k, at)
	}
	r.result.Verified += uint64(r.cfg.Size)
	return nil
}
