package insim

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/contention"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// swapWarmUp and lockWarmUp are how long clients work, in virtual time, before operations are
	// counted. swapTime and lockTime are how long operations are counted.
	swapWarmUp = 200 * time.Microsecond
	swapTime   = 500 * time.Microsecond
	lockWarmUp = 100 * time.Microsecond
	lockTime   = 2 * time.Millisecond
	// setUp is the time by which all connections have been made, including those of the switch.
	setUp = clock.Time(200 * time.Millisecond)
	// wordHosts is the number of hosts on which the clients run.
	wordHosts    = 8
	wordPatience = time.Second

	wordService   = "words"
	switchService = "memory"
)

// wordRun is a load in progress: clients that contend for words.
type wordRun struct {
	load   experiment.Words
	rack   *simrack.Rack
	window contention.Window
	swaps  contention.Swaps
	locks  *contention.Locks
	zipf   *kv.Zipf
	acks   ackCount
}

func (p *Sim) Words(ctx context.Context, l experiment.Words) (experiment.WordsResult, error) {
	l.Words, l.Seed = max(l.Words, 1), cmp.Or(l.Seed, 1)
	s, err := simrack.PassiveRack(wordService, wordHosts, mode(&l.Switch), switchService, l.Switch.Misses)
	if err != nil {
		return experiment.WordsResult{}, err
	}
	r := newWordRun(l)
	r.rack, err = simrack.New(s, simrack.Options{Seed: l.Seed, Recovery: simrack.Recovery{Acks: l.Acks}, Cost: p.model(&l.Switch), Datagrams: true, Cancelled: cancelled(ctx)})
	if err != nil {
		return experiment.WordsResult{}, err
	}
	defer r.rack.Close()
	r.start()
	srv := r.rack.Host("ms0")
	var atomics uint64
	r.rack.At(r.window.From, func() {
		atomics = srv.Counters().RxAtomicRequests
		r.acks = r.countAcks()
	})
	r.rack.At(r.window.Until, func() {
		atomics = srv.Counters().RxAtomicRequests - atomics
		now := r.countAcks()
		r.acks = ackCount{now.acks - r.acks.acks, now.entries - r.acks.entries, now.bytes - r.acks.bytes, now.most}
	})
	if err := run(ctx, r.rack); err != nil {
		return experiment.WordsResult{}, err
	}
	return r.result(float64(atomics)), nil
}

// ackCount has counts of a switch with published rules: positive ACKs of the server, map entries that
// responses acknowledged, and the largest number of one ACK. bytes are those that the server has sent.
type ackCount struct{ acks, entries, bytes, most uint64 }

func (r *wordRun) countAcks() ackCount {
	c := r.rack.Counters(experiment.Published)
	return ackCount{c["acks"], c["ack_entries"], r.rack.Host("ms0").Link().Stats(fault.Up).Bytes, c["ack_entries_most"]}
}

func newWordRun(l experiment.Words) *wordRun {
	r := &wordRun{load: l, zipf: kv.NewZipf(uint64(l.Words), l.Zipf)}
	warm, span := swapWarmUp, swapTime
	if l.Locks {
		warm, span = lockWarmUp, lockTime
	}
	r.window.From = setUp.Add(warm)
	r.window.Until = r.window.From.Add(span)
	r.swaps = contention.Swaps{Window: r.window, More: func(now clock.Time) bool { return now < r.window.Until }}
	r.locks = contention.NewLocks(r.window)
	r.locks.Bits = l.Bits
	return r
}

// start starts the memory server and the clients.
func (r *wordRun) start() {
	srv := r.rack.Host("ms0")
	lent := simrack.Passive{Bytes: max(64, 8*r.load.Words), Device: r.load.Device, Service: wordService}
	if mode(&r.load.Switch) != "" {
		lent.Switch = switchService
	}
	srv.Go(wordService, true, func(ctx verbs.Context) { r.rack.Stop(srv.Lend(ctx, lent)) })
	startClients(r.rack, r.load.Clients, wordHosts, func(h *simrack.Host, ctx verbs.Context, id int) error { return r.client(h, ctx, uint64(id+1)) })
}

// wordEnd is a client's connection to the memory server. base is the address of the first word.
type wordEnd struct {
	cq   verbs.CQ
	qp   verbs.QP
	mr   verbs.MR
	base uint64
	rkey uint32
}

// dialWords connects a client to the words. buf is its local buffer.
func dialWords(h *simrack.Host, ctx verbs.Context, rack *simrack.Rack, buf []byte) (w wordEnd, err error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return w, err
	}
	if w.cq, err = ctx.CreateCQ(4); err != nil {
		return w, err
	}
	if w.mr, err = pd.RegMR(buf, len(buf), verbs.LocalWrite); err != nil {
		return w, err
	}
	if w.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: w.cq, RecvCQ: w.cq}); err != nil {
		return w, err
	}
	private, err := h.Manager(ctx).Dial(w.qp, rack.Host("ms0").Addr(), wordService, rdmacm.Params{}, nil, ctx.Runtime().Now().Add(wordPatience))
	if err != nil {
		return w, err
	}
	w.base, w.rkey, err = simrack.ParseMemory(private)
	return w, err
}

func (r *wordRun) client(h *simrack.Host, ctx verbs.Context, id uint64) error {
	rt := ctx.Runtime()
	buf := make([]byte, 16)
	w, err := dialWords(h, ctx, r.rack, buf)
	if err != nil {
		return err
	}
	on := func(off int) verbs.SendWR {
		return verbs.SendWR{SGL: []verbs.SGE{w.mr.SGE(off, 8)}, RemoteAddr: w.base, RKey: w.rkey}
	}
	rt.Sleep(setUp.Sub(rt.Now()))
	// Clients of the CAS workload poll for their completions, as if each had a processor of its own.
	// Clients of the lock workload sleep until a completion comes.
	loop := contention.Loop{Runtime: rt, CQ: w.cq, Spin: !r.load.Locks, Patience: wordPatience}
	if !r.load.Locks {
		return loop.Run([]contention.Client{r.swaps.Client(w.qp, on(0), buf[:8], id<<32)})
	}
	draw := rand.New(rand.NewPCG(r.load.Seed, id))
	pick := func() uint64 { return w.base + 8*r.zipf.Next(draw) }
	return loop.Run([]contention.Client{r.locks.Client(w.qp, on(0), on(8), buf[:8], pick, id<<32)})
}

// result converts counts of operations into rates. atomics is how many atomics the server's NIC has
// executed in the counted time.
func (r *wordRun) result(atomics float64) (out experiment.WordsResult) {
	span := r.window.Until.Sub(r.window.From).Seconds()
	tries := float64(r.swaps.Done)
	if r.load.Locks {
		l := r.locks
		out.CAS, out.Succeeded = float64(l.Attempts)/span, float64(l.Acquired)/span
		out.P50, out.P99 = time.Duration(l.Waits.ValueAtPercentile(50)), time.Duration(l.Waits.ValueAtPercentile(99))
		tries = float64(l.Attempts + l.Freed)
	} else {
		out.CAS, out.Succeeded = tries/span, float64(r.swaps.Won)/span
		out.Mean = r.swaps.Waited / time.Duration(max(1, r.swaps.Done))
	}
	if tries > 0 {
		out.Replaced = max(0, 1-atomics/tries)
		out.Acks, out.AckBytes, out.AckEntries = float64(r.acks.acks)/tries, float64(r.acks.bytes)/tries, float64(r.acks.entries)/tries
		out.AckEntriesMost = float64(r.acks.most)
	}
	return out
}
