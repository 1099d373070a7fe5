package insim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Times of SoloRekey, in which a client READs two regions of a host, each with half of the load.
// The key of the first region is replaced every rekeyEvery.
const (
	rekeyWarm  = 200 * soloRTT
	rekeyEvery = 50 * soloRTT
)

// rekeyRead is one READ. region is the region that it reads: 0 is the one whose key is replaced.
// refused is how often the READ was refused, and key the number of the key that it used last.
type rekeyRead struct {
	region       int
	began, ended clock.Time
	refused      int
	key          int
}

// rekeyLog has all READs of a run, in the order in which they began.
type rekeyLog struct {
	reads []*rekeyRead
	keys  int // how often the key was replaced
}

func (g *rekeyLog) begin(region int, now clock.Time) *rekeyRead {
	x := &rekeyRead{region: region, began: now}
	g.reads = append(g.reads, x)
	return x
}

// result compares run g, in which keys were replaced, with run plain, in which no key was replaced.
// The READs of both runs began at the same times.
func (g *rekeyLog) result(plain *rekeyLog) (*experiment.Rekey, error) {
	if len(g.reads) != len(plain.reads) || g.keys == 0 {
		return nil, fmt.Errorf("%d READs and %d new keys, and %d READs without", len(g.reads), g.keys, len(plain.reads))
	}
	out := new(experiment.Rekey)
	for i, x := range g.reads {
		y := plain.reads[i]
		if x.ended == 0 || y.ended == 0 || x.region != y.region {
			return nil, fmt.Errorf("READ %d has not ended: %+v, without new keys %+v", i, *x, *y)
		}
		if x.refused > 0 {
			out.Failed[x.region] += 1 / float64(g.keys)
		}
		out.Times = max(out.Times, x.refused)
		out.Added[x.region] = max(out.Added[x.region], float64(x.ended.Sub(x.began)-y.ended.Sub(y.began))/float64(soloRTT))
	}
	return out, nil
}

// rekeyed runs a load twice, with new keys and without, and compares both runs. run gets the number
// of new keys.
func rekeyed(l *experiment.OneRMA, out *experiment.OneRMAResult, run func(keys int) (*rekeyLog, error)) error {
	with, err := run(max(1, int(l.Span/rekeyEvery)))
	if err != nil {
		return err
	}
	without, err := run(0)
	if err != nil {
		return err
	}
	out.Rekey, err = with.result(without)
	return err
}

// rekeyTimes calls f with the number of each new key (1, 2 and so on) when this key is to replace
// the one before.
func rekeyTimes(t timeline, keys int, f func(number int)) {
	for i := range keys {
		t.At(clock.Time(0).Add(rekeyWarm+time.Duration(i)*rekeyEvery), func() { f(i + 1) })
	}
}

// rekeyArrivals calls f at the beginning of each READ of a load, with the number of the READ's
// region.
func rekeyArrivals(t timeline, l *experiment.OneRMA, f func(region int)) {
	for region := range 2 {
		poisson(t, rand.New(rand.NewPCG(14, uint64(region))), l.Load/2*soloRate/8/soloFrame, clock.Time(0).Add(rekeyWarm+l.Span), func() { f(region) })
	}
}

// rekeyEnd returns the virtual time by which all READs of a load have ended.
func rekeyEnd(l *experiment.OneRMA) time.Duration { return rekeyWarm + l.Span + 200*soloRTT }

// rekeyRun is a load SoloRekey of 1RMA NICs in progress.
type rekeyRun struct {
	rekeyLog
	rack    *soloRack
	load    *experiment.OneRMA
	client  *soloHost
	owner   *soloHost
	regions [2]*nic.Region
	secrets []nic.Key              // keys of the first region (K_r), by number
	ciphers map[[2]int]*nic.Cipher // keys of the client, by region and number; see cipher
	known   int                    // number of the key that the client uses for the first region
	flying  map[uint64]*rekeyRead  // READs in flight, by tag
	asking  []*rekeyRead           // READs that wait until the owner has told the client the next key
	tags    uint64                 // the tag of the next READ
}

func soloRekey(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	return rekeyed(l, out, func(keys int) (*rekeyLog, error) {
		r := &rekeyRun{load: l, ciphers: make(map[[2]int]*nic.Cipher), flying: make(map[uint64]*rekeyRead)}
		return &r.rekeyLog, r.run(ctx, keys)
	})
}

func (r *rekeyRun) run(ctx context.Context, keys int) (err error) {
	if r.rack, err = newSoloRack(ctx, 3, r.load); err != nil {
		return err
	}
	r.client, r.owner = r.rack.hosts[0], r.rack.hosts[1]
	table := mem.New(rand.New(rand.NewPCG(1, 1)), 0)
	pd, err := table.AllocPD()
	if err != nil {
		return err
	}
	m, err := table.Reg(pd, make([]byte, soloChunk), verbs.RemoteRead)
	if err != nil {
		return err
	}
	second, err := r.owner.nic.Register(m)
	if err != nil {
		return err
	}
	r.regions = [2]*nic.Region{r.owner.region, second}
	r.secrets = []nic.Key{r.owner.region.Key()}
	for i := range keys {
		r.secrets = append(r.secrets, nic.Key{byte(i), byte(i >> 8), 14})
	}
	r.client.m.Ended = r.collect
	control, err := r.rack.hosts[2].nic.Open(2000, 1)
	if err != nil {
		return err
	}
	r.rack.hosts[2].m.Ended = func() {
		var done [1]nic.Completion
		if control.Poll(done[:]) == 1 && done[0].Status != nic.OK {
			r.rack.fail(fmt.Errorf("a REKEY ends as %v", done[0].Status))
		}
	}
	rekeyTimes(r.rack.net, keys, func(n int) { r.keys = n; r.rack.fail(r.replace(control, n)) })
	rekeyArrivals(r.rack.net, r.load, func(region int) {
		now, _ := r.rack.net.Begin(r.client.node)
		x := r.begin(region, now)
		if region == 0 && len(r.asking) > 0 {
			r.asking = append(r.asking, x)
		} else {
			r.read(now, x)
		}
		r.rack.net.End(r.client.node)
	})
	return r.rack.run(rekeyEnd(r.load))
}

// replace replaces the key of the first region: by a REKEY of a third host, or by the owner's driver.
func (r *rekeyRun) replace(control *nic.Portal, n int) error {
	if r.load.Way == experiment.WayDriver {
		return r.owner.nic.SetKey(r.regions[0], r.secrets[n])
	}
	third := r.rack.hosts[2]
	now, _ := r.rack.net.Begin(third.node)
	err := control.Issue(now, &nic.Command{
		Op: onerma.Rekey, Length: onerma.KeyLen, Target: r.owner.addr, Remote: r.regions[0].ID(),
		Key: nic.NewCipher(nic.Derive(r.secrets[n-1], third.addr, control.PID(), onerma.Rekey)), NewKey: r.secrets[n],
	})
	r.rack.net.End(third.node)
	return err
}

// cipher returns the key by which the client READs a region. For region 0, whose key is replaced,
// it is derived from the region's key with the given number; for region 1, from the only key of
// that region.
func (r *rekeyRun) cipher(region, number int) *nic.Cipher {
	id := [2]int{region, number}
	if r.ciphers[id] == nil {
		secret := r.regions[1].Key()
		if region == 0 {
			secret = r.secrets[number]
		}
		r.ciphers[id] = nic.NewCipher(nic.Derive(secret, r.client.addr, r.client.portal.PID(), onerma.Read))
	}
	return r.ciphers[id]
}

// read starts a READ with the key that the client uses. The caller is between Begin and End (simnet.Net)
// of the client's host, or in a callback of that host's NIC.
func (r *rekeyRun) read(now clock.Time, x *rekeyRead) {
	t := executor.Transfer{
		Op: onerma.Read, Target: r.owner.addr, Remote: r.regions[x.region].ID(), Length: soloChunk, Local: r.client.region, Deadline: clock.Never, Tag: r.tags,
	}
	if x.region == 0 {
		x.key = r.known
	}
	t.Key = r.cipher(x.region, x.key)
	r.flying[r.tags] = x
	r.tags++
	r.rack.fail(r.client.exec.Start(now, t))
}

// collect takes the results of the client's READs.
func (r *rekeyRun) collect() {
	var out [16]executor.Result
	now := r.rack.net.Now()
	for k := len(out); k == len(out); {
		k = r.client.exec.Results(out[:])
		for i := range out[:k] {
			x := r.flying[out[i].Tag]
			delete(r.flying, out[i].Tag)
			switch {
			case out[i].Status == nic.RemoteAuthenticationFailure:
				x.refused++
				r.refused(now, x)
			case out[i].Status != nic.OK:
				r.rack.fail(fmt.Errorf("a READ of region %d ends as %v", x.region, out[i].Status))
			default:
				x.ended = now
			}
		}
	}
}

// refused tries a READ again with the next key. If the client does not have that key, it asks the owner,
// whose answer comes a round trip later.
func (r *rekeyRun) refused(now clock.Time, x *rekeyRead) {
	if x.region != 0 {
		r.rack.fail(errors.New("a READ of the region that has kept its key is refused"))
		return
	}
	if x.key == r.known && r.load.Way != experiment.WayAsks {
		r.known++
	}
	if x.key < r.known {
		r.read(now, x)
		return
	}
	if r.asking = append(r.asking, x); len(r.asking) > 1 {
		return
	}
	r.rack.net.At(now.Add(soloRTT), func() {
		now, _ := r.rack.net.Begin(r.client.node)
		r.known++
		list := r.asking
		r.asking = nil
		for _, x := range list {
			r.read(now, x)
		}
		r.rack.net.End(r.client.node)
	})
}

// reconnectRun is a load SoloRekey over RoCEv2 in progress. The R_Key of a region is replaced by
// deregistration and a new registration. A READ with the old R_Key breaks the connection. The
// client then makes a new connection, whose set-up also tells it the new R_Key.
type reconnectRun struct {
	rekeyLog
	rack    *roceRack
	qp      verbs.QP
	regions [2]verbs.MR
	base    uint64
	rkey    uint32       // R_Key of the first region, as the client knows it
	known   int          // number of the present connection, from 0
	posted  []*rekeyRead // READs in flight, in the order of their posts
	waiting []*rekeyRead // READs that wait for a connection, or for room in the send queue
}

const reconnectService = "region"

func roceRekey(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	return rekeyed(l, out, func(keys int) (*rekeyLog, error) {
		rack, err := newRoceRack(ctx, 2, false)
		if err != nil {
			return nil, err
		}
		defer rack.Close()
		r := &reconnectRun{rack: rack}
		return &r.rekeyLog, r.run(l, keys)
	})
}

func (r *reconnectRun) run(l *experiment.OneRMA, keys int) error {
	client, owner := r.rack.hosts[0], r.rack.hosts[1]
	for i := range r.regions {
		if err := r.register(i); err != nil {
			return err
		}
	}
	owner.ctx.Runtime().Go("accept", func() { r.rack.Stop(r.accept()) })
	client.ctx.Runtime().Go("reads", func() { r.rack.Stop(r.serve()) })
	rekeyTimes(r.rack, keys, func(n int) {
		r.keys = n
		if err := errors.Join(r.regions[0].Dereg(), r.register(0)); err != nil {
			r.rack.Stop(err)
		}
	})
	rekeyArrivals(r.rack, l, func(region int) {
		r.waiting = append(r.waiting, r.begin(region, r.rack.Now()))
		if err := r.post(); err != nil {
			r.rack.Stop(err)
		}
	})
	return r.rack.Settle(rekeyEnd(l))
}

func (r *reconnectRun) register(i int) (err error) {
	r.regions[i], err = r.rack.hosts[1].pd.RegMR(nil, soloChunk, verbs.RemoteRead)
	return err
}

// accept makes a queue pair for each connection of the client. The answer to the client has the
// R_Key of the first region.
func (r *reconnectRun) accept() error {
	h := r.rack.hosts[1]
	l, err := h.host.Manager(h.ctx).Listen(reconnectService)
	if err != nil {
		return err
	}
	for {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return err
		}
		qp, err := h.pd.CreateQP(verbs.QPInit{SendCQ: h.cq, RecvCQ: h.cq})
		if err != nil {
			return err
		}
		if err := req.Accept(qp, rdmacm.Params{}, simrack.MemoryAt(r.regions[0]), clock.Never); err != nil {
			return err
		}
	}
}

// serve connects the client, collects its completions, and connects it again after each failure.
func (r *reconnectRun) serve() error {
	h := r.rack.hosts[0]
	manager := h.host.Manager(h.ctx)
	for ; ; r.known++ {
		cq, err := h.ctx.CreateCQ(2 * roceQueue)
		if err != nil {
			return err
		}
		qp, err := h.pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: roceQueue})
		if err != nil {
			return err
		}
		private, err := manager.Dial(qp, r.rack.hosts[1].host.Addr(), reconnectService, rdmacm.Params{}, nil, clock.Never)
		if err != nil {
			return err
		}
		if r.base, r.rkey, err = simrack.ParseMemory(private); err != nil {
			return err
		}
		r.qp = qp
		if err := r.post(); err != nil {
			return err
		}
		if err := r.collect(cq); err != nil {
			return err
		}
		if err := errors.Join(qp.Destroy(), cq.Destroy()); err != nil {
			return err
		}
	}
}

// post posts the waiting READs if there is a connection, as many as the send queue has room for.
func (r *reconnectRun) post() error {
	for r.qp != nil && len(r.waiting) > 0 && len(r.posted) < roceQueue {
		x := r.waiting[0]
		r.waiting, r.posted = r.waiting[1:], append(r.posted, x)
		addr, rkey := r.base, r.rkey
		if x.key = r.known; x.region == 1 {
			addr, rkey = r.regions[1].Addr(), r.regions[1].RKey()
		}
		if err := r.qp.PostSend(verbs.SendWR{
			Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{r.rack.hosts[0].mr.SGE(0, soloChunk)}, RemoteAddr: addr, RKey: rkey,
		}); err != nil {
			return err
		}
	}
	return nil
}

// collect takes completions until the connection is broken and all READs on it have ended. The
// READs that have failed wait for the next connection.
func (r *reconnectRun) collect(cq verbs.CQ) error {
	var wcs [64]verbs.WC
	var failed []*rekeyRead
	for len(failed) == 0 || len(r.posted) > 0 {
		if err := cq.Wait(clock.Never); err != nil {
			return err
		}
		n, err := cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			x := r.posted[0]
			r.posted = r.posted[1:]
			switch wcs[i].Status {
			case verbs.Success:
				x.ended = r.rack.Now()
			case verbs.RemAccessErr, verbs.WRFlushErr:
				r.qp = nil
				x.refused++
				failed = append(failed, x)
			default:
				return fmt.Errorf("a READ ends with %v", wcs[i].Status)
			}
		}
		if err := r.post(); err != nil {
			return err
		}
	}
	r.waiting = append(failed, r.waiting...)
	return nil
}
