package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// fixedRack is the rack of crash and partition. It has two memory servers, so that a run can show
// that the fault of one host does not affect a connection between others.
var fixedRack = clientRack(2, 2)

// soakFaults are the faults on the client's link, in both directions. Seed 1 has the first entry,
// seed 2 the second, and so on; seed 6 has the first one again.
var soakFaults = []struct {
	name  string
	rules []fault.Rule
}{
	{"10% loss", []fault.Rule{{Kind: fault.Loss, Probability: 0.1}}},
	{"10% doubled", []fault.Rule{{Kind: fault.Duplicate, Probability: 0.1}}},
	{"10% reordered", []fault.Rule{{Kind: fault.Reorder, Probability: 0.1, Delay: 20 * time.Microsecond}}},
	{"10% corrupted", []fault.Rule{{Kind: fault.Corrupt, Probability: 0.1}}},
	{"4% lost, 4% corrupted, 10% doubled, 10% reordered", []fault.Rule{
		{Kind: fault.Loss, Probability: 0.04},
		{Kind: fault.Corrupt, Probability: 0.04},
		{Kind: fault.Duplicate, Probability: 0.1},
		{Kind: fault.Reorder, Probability: 0.1, Delay: 20 * time.Microsecond},
	}},
}

// soakTimeout is the code of an ACK timeout of 16.8 ms. It is short because thousands of losses are
// noticed by the timer alone.
const soakTimeout = 12

// runSoak is the acceptance test of the transport: it runs the test of `rdmalab perf soak` over
// lossy links.
func (e *env) runSoak() error {
	faults := &soakFaults[(e.seed+uint64(len(soakFaults))-1)%uint64(len(soakFaults))]
	e.report.Plan = faults.name + " both ways on cn0, 2000 x 64 KiB WRITE, READ and SEND, 20000 atomics"
	if err := e.build(transportRack, simrack.Options{}); err != nil {
		return err
	}
	rules := slices.Clone(faults.rules)
	for i := range rules {
		rules[i].Link = "cn0"
	}
	e.rack.Host("cn0").SetFaults(rules)
	e.servePerf()
	var res perf.Result
	cfg := perf.Config{Test: perf.Soak, To: server, Seed: e.seed, Iters: 2000, Atomics: 20000, Size: 64 << 10, Path: perf.Path{Timeout: soakTimeout}}
	if e.opt.Short {
		cfg.Iters, cfg.Atomics = cfg.Iters/10, cfg.Atomics/10
	}
	e.client("cn0", "soak", e.soakClient("cn0", cfg, &res))
	if err := e.run(); err != nil {
		return err
	}
	s := res.Soak
	e.note("%d WRITEs, %d READs, %d SENDs of %d bytes, %d bytes verified", s.Writes, s.Reads, s.Sends, res.Config.Size, res.Verified)
	e.note("%d FETCH_ADDs: sum %d, expected %d; %d CMP_SWAPs: %d took effect", s.FetchAdds, s.Sum, s.Expected, s.CmpSwaps, s.Swapped)
	if err := e.checkAtomics(server, s.FetchAdds+s.CmpSwaps); err != nil {
		return err
	}
	return e.checkConservation()
}

// writer is a client that WRITEs to a server, one message at a time, until a given time, or until a
// WRITE fails.
type writer struct {
	from, to string
	params   rdmacm.Params
	writes   int
	lastOK   clock.Time // when the last WRITE that succeeded was complete
	posted   clock.Time // when the last WRITE was posted, which may be the one that failed
	failed   clock.Time // when a WRITE failed; 0: none has failed
	status   verbs.Status
	longest  time.Duration // how long the slowest WRITE that succeeded took
}

const (
	writerService = "region"
	writerBytes   = 4096
)

// serveRegion starts an application on a host. The application registers a memory region, and sends
// the description of the region to `conns` clients. After that the host is passive.
func (e *env) serveRegion(host string, conns int) {
	h := e.rack.Host(host)
	h.Go(writerService, true, func(ctx verbs.Context) {
		if err := serveRegion(ctx, h, conns); err != nil {
			e.fail("server %s: %w", host, err)
		}
	})
}

func serveRegion(ctx verbs.Context, h *simrack.Host, conns int) error {
	l, pd, err := listen(h, ctx, writerService)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, writerBytes, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	if err != nil {
		return err
	}
	return acceptAll(ctx, l, conns, pd, rdmacm.Params{}, mr)
}

func (w *writer) start(e *env, end clock.Time) {
	e.client(w.from, "writer-"+w.to, func(ctx verbs.Context) error {
		ends, err := newEnds(ctx, writerBytes, 1, verbs.LocalWrite)
		if err != nil {
			return err
		}
		to := e.rack.Host(w.to).Addr()
		private, err := e.rack.Host(w.from).Manager(ctx).Dial(ends.qp, to, writerService, w.params, nil, ends.rt.Now().Add(dialPatience))
		if err != nil {
			return err
		}
		return w.run(ends, parseRemotes(private)[0], end)
	})
}

// writeGap is the pause between two WRITEs.
const writeGap = 100 * time.Microsecond

func (w *writer) run(ends *ends, mem remote, end clock.Time) error {
	for ends.rt.Now() < end {
		w.posted = ends.rt.Now()
		wc, err := ends.do(verbs.SendWR{
			ID: uint64(w.writes), Op: verbs.OpWrite, SGL: []verbs.SGE{ends.mr.SGE(0, writerBytes)}, RemoteAddr: mem.addr, RKey: mem.rkey,
		})
		if err != nil {
			return err
		}
		now := ends.rt.Now()
		if w.status = wc.Status; w.status != verbs.Success {
			w.failed = now
			return nil
		}
		w.longest = max(w.longest, now.Sub(w.posted))
		w.writes++
		w.lastOK = now
		ends.rt.Sleep(writeGap)
	}
	return ends.close()
}

// runCrash crashes the NIC of one memory server while two clients use it. A third client uses the
// other server.
func (e *env) runCrash() error {
	timeout, retry := uint8(e.draw.between(8, 12)), uint8(e.draw.between(1, 7))
	at := clock.Time(e.draw.span(time.Millisecond, 5*time.Millisecond))
	e.report.Plan = fmt.Sprintf("timeout=%d (%v) retry=%d, NIC of ms0 dies at %v", timeout, transport.AckTimeout(timeout), retry, at)
	if err := e.build(fixedRack, simrack.Options{}); err != nil {
		return err
	}
	e.serveRegion("ms0", 2)
	e.serveRegion("ms1", 1)
	p := rdmacm.Params{Timeout: timeout, RetryCount: retry}
	victims := []*writer{{from: "cn0", to: "ms0", params: p}, {from: "cn1", to: "ms0", params: p}}
	other := &writer{from: "cn0", to: "ms1", params: p}
	_, latest := promise(timeout, retry)
	end := at.Add(latest + 10*time.Millisecond)
	for _, w := range append(victims, other) {
		w.start(e, end)
	}
	e.rack.At(at, e.rack.Host("ms0").CrashNIC)
	if err := e.run(); err != nil {
		return err
	}
	for _, w := range victims {
		if err := w.checkPromise(e, at, timeout, retry); err != nil {
			return err
		}
	}
	return other.undisturbed(e)
}

// promise returns how early and how late a requester may give up, counted from the post of a
// request that is not answered. Each of retry+1 waits takes between the ACK timeout, whose code is
// timeout, and four times this time (IBTA 9.7.6.1.3).
func promise(timeout, retry uint8) (earliest, latest time.Duration) {
	t := transport.AckTimeout(timeout) * time.Duration(retry+1)
	return t, 4 * t
}

func (w *writer) checkPromise(e *env, crash clock.Time, timeout, retry uint8) error {
	if w.status != verbs.RetryExcErr {
		return fmt.Errorf("%s: status %v after %d WRITEs, want %v", w.from, w.status, w.writes, verbs.RetryExcErr)
	}
	if w.lastOK > crash.Add(time.Millisecond) {
		return fmt.Errorf("%s: a WRITE succeeded at %v, the NIC died at %v", w.from, w.lastOK, crash)
	}
	earliest, latest := promise(timeout, retry)
	took := w.failed.Sub(w.posted)
	e.note("%s -> %s: %d WRITEs, then %v after %v; promised %v to %v", w.from, w.to, w.writes, w.status, took, earliest, latest)
	if took < earliest || took > latest+time.Millisecond {
		return fmt.Errorf("%s: gave up after %v, promised %v to %v", w.from, took, earliest, latest)
	}
	return nil
}

// undisturbed returns an error unless every WRITE of w, whose hosts had no fault, has succeeded
// within 100 µs.
func (w *writer) undisturbed(e *env) error {
	e.note("%s -> %s: %d WRITEs, the longest took %v", w.from, w.to, w.writes, w.longest)
	if w.status != verbs.Success || w.longest > 100*time.Microsecond {
		return fmt.Errorf("%s -> %s was disturbed by a fault of another host: %v, one WRITE took %v", w.from, w.to, w.status, w.longest)
	}
	return nil
}

// runPartition cuts a host off for a time that is shorter than its retries, so that its connection
// must survive.
func (e *env) runPartition() error {
	const timeout, retry = 10, 7
	at := clock.Time(2 * time.Millisecond)
	lastRetry := retry * transport.AckTimeout(timeout) // time from the first post without an answer to the last retry
	cut := e.draw.span(5*time.Millisecond, lastRetry-time.Millisecond)
	e.report.Plan = fmt.Sprintf("cn0 is cut off at %v for %v; the last retry is %v after the cut", at, cut, lastRetry)
	if err := e.build(fixedRack, simrack.Options{}); err != nil {
		return err
	}
	e.serveRegion("ms0", 1)
	e.serveRegion("ms1", 1)
	p := rdmacm.Params{Timeout: timeout, RetryCount: retry}
	victim, other := &writer{from: "cn0", to: "ms0", params: p}, &writer{from: "cn1", to: "ms1", params: p}
	end := at.Add(cut + 20*time.Millisecond)
	victim.start(e, end)
	other.start(e, end)
	e.rack.At(at, func() { e.rack.Partition([]string{"cn0"}) })
	e.rack.At(at.Add(cut), func() { e.rack.Partition(nil) })
	if err := e.run(); err != nil {
		return err
	}
	e.note("%s -> %s: %d WRITEs, the longest took %v", victim.from, victim.to, victim.writes, victim.longest)
	if victim.status != verbs.Success || victim.longest < cut/2 || victim.lastOK < at.Add(cut) {
		return fmt.Errorf("cn0 was cut off for %v: %v, its longest WRITE took %v, the last was at %v", cut, victim.status, victim.longest, victim.lastOK)
	}
	return other.undisturbed(e)
}

// sleepy is a receiver that posts its first receive late or never, so that its NIC answers with RNR
// NAKs.
type sleepy struct {
	service string
	delay   time.Duration // time until the first receive; negative: there is none
	params  rdmacm.Params // parameters of the sender's connection
	timer   uint8         // code of the receiver's RNR timer
	status  verbs.Status  // how the sender's only message ended
	took    time.Duration // how long the message took
	got     int           // messages that the receiver got
}

// runRNR runs two connections at the same time. On the first, the receiver posts its receive late
// and the sender has no retry limit: the message must arrive. On the second, the receiver never
// posts and the sender has few retries: it must give up with the right status.
func (e *env) runRNR() error {
	timer, retries := uint8(e.draw.between(1, 14)), uint8(e.draw.between(1, 6))
	late := e.draw.span(time.Millisecond, 20*time.Millisecond)
	e.report.Plan = fmt.Sprintf("RNR timer %d (%v), receive posted after %v; %d retries of a receiver that never posts",
		timer, transport.RNRDelay(timer), late, retries)
	if err := e.build(transportRack, simrack.Options{}); err != nil {
		return err
	}
	patient := &sleepy{service: "late", delay: late, timer: timer}
	hopeless := &sleepy{service: "never", delay: -1, timer: timer, params: rdmacm.Params{RNRRetry: retries}}
	for i, s := range []*sleepy{patient, hopeless} {
		e.serve(s.service, s.serve)
		from := fmt.Sprintf("cn%d", i)
		e.client(from, s.service, func(ctx verbs.Context) error { return s.send(e, from, ctx) })
	}
	if err := e.run(); err != nil {
		return err
	}
	wait := transport.RNRDelay(timer)
	e.note("late receiver: %v after %v", patient.status, patient.took)
	e.note("no receiver: %v after %v, %d waits of %v", hopeless.status, hopeless.took, retries, wait)
	if patient.status != verbs.Success || patient.got != 1 || patient.took < late || patient.took > late+wait+time.Millisecond {
		return fmt.Errorf("late receiver: %v after %v, %d messages; the receive came after %v", patient.status, patient.took, patient.got, late)
	}
	if least := time.Duration(retries) * wait; hopeless.status != verbs.RNRRetryExcErr || hopeless.took < least || hopeless.took > least+time.Millisecond {
		return fmt.Errorf("no receiver: %v after %v, want %v after %v", hopeless.status, hopeless.took, verbs.RNRRetryExcErr, least)
	}
	return nil
}

func (s *sleepy) serve(ctx verbs.Context, l rdmacm.Listener) error {
	end, err := newEnds(ctx, 64, 1, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if err := accept(ctx, l, end.qp, rdmacm.Params{MinRNRTimer: s.timer}); err != nil {
		return err
	}
	if s.delay < 0 {
		return nil
	}
	end.rt.Sleep(s.delay)
	if err := end.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{end.mr.SGE(0, 64)}}); err != nil {
		return err
	}
	wc, err := end.one()
	if err != nil {
		return err
	}
	if wc.Status != verbs.Success {
		return fmt.Errorf("receive: %v", wc.Status)
	}
	s.got++
	return nil
}

func (s *sleepy) send(e *env, from string, ctx verbs.Context) error {
	end, err := newEnds(ctx, 64, 1, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if _, err := e.dial(e.rack.Host(from), ctx, end.qp, s.service, s.params, nil); err != nil {
		return err
	}
	start := end.rt.Now()
	wc, err := end.do(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{end.mr.SGE(0, 64)}})
	if err != nil {
		return err
	}
	s.status, s.took = wc.Status, end.rt.Now().Sub(start)
	return nil
}
