package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// anyNIC is a NIC whose application makes random calls in random order.
type anyNIC struct {
	e   *Engine
	gid verbs.GID
	pds []*PD
	cqs []*CQ
	mrs []*MR
	qps []*QP
	ahs []*AH
	srq []*SRQ
	mws []*MW
	dms []*DM
	out packetio.Batch
}

// handleOf converts an address handle to a type of package verbs.
type handleOf struct{ ah *AH }

func (h handleOf) Handle() uint32 { return h.ah.Handle() }
func (h handleOf) Destroy() error { return h.ah.Destroy() }

func one[T any](r *rand.Rand, list []T) (v T, ok bool) {
	if len(list) == 0 {
		return v, false
	}
	return list[r.IntN(len(list))], true
}

// make makes an object from other objects, some of which may have been destroyed.
func (n *anyNIC) make(r *rand.Rand) {
	pd, havePD := one(r, n.pds)
	send, haveCQ := one(r, n.cqs)
	recv, _ := one(r, n.cqs)
	switch k := r.IntN(10); {
	case k == 0 || !havePD:
		if pd, err := n.e.AllocPD(); err == nil {
			n.pds = append(n.pds, pd)
		}
	case k == 1 || !haveCQ:
		if c, err := n.e.CreateCQ(1 + r.IntN(40)); err == nil {
			n.cqs = append(n.cqs, c)
		}
	case k == 2:
		rights := verbs.LocalWrite | verbs.MWBind&verbs.Access(-r.IntN(2)) | verbs.Access(r.IntN(8)<<1)
		m, err := n.e.RegMR(pd, make([]byte, 1+r.IntN(20000)), rights)
		if r.IntN(3) == 0 {
			m, err = pd.AllocFastMR(make([]byte, 1+r.IntN(20000)))
		}
		if d, ok := one(r, n.dms); ok && r.IntN(3) == 0 {
			m, err = n.e.RegDM(pd, d, r.IntN(20), 1+r.IntN(20), rights)
		}
		if err == nil {
			n.mrs = append(n.mrs, m)
		}
	case k == 3:
		if a, err := n.e.CreateAH(pd, verbs.AHAttr{DestGID: n.gid}); err == nil {
			n.ahs = append(n.ahs, a)
		}
	case k == 5:
		if w, err := n.e.AllocMW(pd); err == nil {
			n.mws = append(n.mws, w)
		}
	case k == 6:
		if d, err := n.e.AllocDM(1 + r.IntN(100)); err == nil {
			n.dms = append(n.dms, d)
		}
	case k == 4:
		if s, err := n.e.CreateSRQ(pd, verbs.SRQInit{MaxWR: 1 + r.IntN(9)}); err == nil {
			n.srq = append(n.srq, s)
			_ = s.SetLimit(r.IntN(4))
		}
	default:
		srq, _ := one(r, n.srq)
		if r.IntN(2) == 0 {
			srq = nil
		}
		init := verbs.QPInit{Type: []verbs.QPType{verbs.RC, verbs.RC, verbs.UC, verbs.UD}[r.IntN(4)], MaxSendWR: 1 + r.IntN(9), MaxRecvWR: 1 + r.IntN(9)}
		if q, err := n.e.CreateQPOn(pd, send, recv, srq, init); err == nil {
			n.qps = append(n.qps, q)
		}
	}
}

// end destroys an object, or tries to.
func (n *anyNIC) end(r *rand.Rand) {
	switch r.IntN(8) {
	case 0:
		if q, ok := one(r, n.qps); ok {
			_ = q.Destroy()
		}
	case 1:
		if c, ok := one(r, n.cqs); ok {
			_ = c.Destroy()
		}
	case 2:
		if m, ok := one(r, n.mrs); ok {
			_ = m.Dereg()
		}
	case 3:
		if a, ok := one(r, n.ahs); ok {
			_ = a.Destroy()
		}
	case 4:
		if p, ok := one(r, n.pds); ok {
			_ = p.Dealloc()
		}
	case 5:
		if s, ok := one(r, n.srq); ok {
			_ = s.Destroy()
		}
	case 6:
		if w, ok := one(r, n.mws); ok {
			_ = w.Dealloc()
		}
	case 7:
		if d, ok := one(r, n.dms); ok {
			_ = d.Free()
		}
	}
}

// modify asks for a transition of a queue pair: mostly the next one on the way to RTS, sometimes
// any other.
func (n *anyNIC) modify(r *rand.Rand, now clock.Time, peer *anyNIC) {
	q, ok := one(r, n.qps)
	other, ok2 := one(r, peer.qps)
	if !ok || !ok2 {
		return
	}
	k := r.IntN(40)
	if k > 7 {
		k = map[verbs.QPState]int{verbs.StateReset: 0, verbs.StateInit: 1, verbs.StateRTR: 2, verbs.StateError: 6, verbs.StateSQE: 4, verbs.StateSQD: 4}[q.q.State()]
	}
	switch k {
	case 0:
		_ = q.ToInit(verbs.ToInit{Access: verbs.Access(r.IntN(8) << 1)})
	case 1:
		_ = q.ToRTR(now, verbs.ToRTR{DestQPN: other.Num(), DestGID: peer.e.cfg.GIDs[0], PathMTU: verbs.MTU256, RecvPSN: wire.PSN(r.IntN(2)), MinRNRTimer: 1 + uint8(r.IntN(5))})
	case 2:
		_ = q.ToRTS(now, verbs.ToRTS{Timeout: 8 + uint8(r.IntN(3)), RetryCount: uint8(r.IntN(8)), RNRRetry: uint8(r.IntN(8)), SendPSN: wire.PSN(r.IntN(2))})
	case 3:
		_ = q.ToSQD(now, &n.out)
	case 4:
		_ = q.ResumeRTS(now, &n.out)
	case 5:
		_ = q.ToError(now, &n.out)
	case 6:
		_ = q.ToReset()
	}
}

// sge returns a random range of bytes, mostly inside a region.
func (n *anyNIC) sge(r *rand.Rand) verbs.SGE {
	m, ok := one(r, n.mrs)
	if !ok {
		return verbs.SGE{Length: uint32(r.IntN(100))}
	}
	size := m.region.Len()
	return verbs.SGE{Addr: m.region.Base() + uint64(r.IntN(size)), Length: uint32(r.IntN(size)), LKey: m.region.LKey()}
}

// rkey returns the R_Key of a random region.
func (n *anyNIC) rkey(r *rand.Rand) uint32 {
	if m, ok := one(r, n.mrs); ok {
		return m.region.RKey()
	}
	return 0
}

// target returns the address and the R_Key of a random range of bytes.
func (n *anyNIC) target(r *rand.Rand) (va uint64, rkey uint32) {
	m, ok := one(r, n.mrs)
	if !ok {
		return 0, 0
	}
	return m.region.Base() + uint64(r.IntN(m.region.Len())), m.region.RKey()
}

func (n *anyNIC) post(r *rand.Rand, now clock.Time, peer *anyNIC) {
	q, ok := one(r, n.qps)
	if !ok {
		return
	}
	if k := r.IntN(6); k < 2 {
		wr := []verbs.RecvWR{{SGL: []verbs.SGE{n.sge(r), n.sge(r)}}}
		if _ = q.PostRecv(wr); k == 0 && q.srq != nil {
			_ = q.srq.PostRecv(wr)
		}
		return
	}
	va, rkey := peer.target(r)
	if w, ok := one(r, peer.mws); ok && r.IntN(4) == 0 {
		rkey = w.Key()
	}
	wr := verbs.SendWR{
		Op: verbs.WROpcode(r.IntN(int(verbs.OpFlush) + 1)), Flags: verbs.SendFlags(r.IntN(8)), SGL: []verbs.SGE{n.sge(r)},
		RemoteAddr: va, RKey: rkey, InvRKey: rkey, CompareAdd: r.Uint64(),
	}
	switch wr.Op {
	case verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd:
		wr.SGL[0].Length = 8
		wr.RemoteAddr &^= 7
	case verbs.OpAtomicWrite:
		wr.SGL, wr.Flags = nil, wr.Flags&^verbs.Inline
		wr.RemoteAddr &^= 7
	case verbs.OpFlush:
		wr.SGL, wr.Flags = nil, wr.Flags&^verbs.Inline
		wr.Flush = verbs.Flush{Length: uint32(r.IntN(5000)), Region: r.IntN(2) == 0, Global: true, Persistent: r.IntN(2) == 0}
	case verbs.OpLocalInv:
		wr.InvRKey, wr.SGL = n.rkey(r), nil
		if w, ok := one(r, n.mws); ok && r.IntN(3) > 0 {
			wr.InvRKey = w.Key()
		}
	case verbs.OpRegMR:
		wr.BindAccess = verbs.Access(r.IntN(32)) | verbs.LocalWrite
		if m, ok := one(r, n.mrs); ok { // mostly memory that can be registered
			wr.RKey = verbs.NextRKey(m.region.RKey())
			wr.SGL[0] = verbs.SGE{Addr: m.region.Base(), Length: uint32(1 + r.IntN(m.region.Len())), LKey: m.region.LKey()}
		}
	case verbs.OpBindMW:
		wr.BindAccess = verbs.Access(r.IntN(8) << 1)
		if w, ok := one(r, n.mws); ok {
			wr.RKey = verbs.NextRKey(w.Key())
		}
	}
	if ah, ok := one(r, n.ahs); ok {
		other, _ := one(r, peer.qps)
		if wr.AH = (handleOf{ah}); other != nil {
			wr.RemoteQPN = other.Num()
		}
	}
	list := []verbs.SendWR{wr, wr}
	_ = q.PostSend(now, list[:1+r.IntN(2)], &n.out)
}

// check checks the invariants that hold between two calls.
func (n *anyNIC) check(t *testing.T, now clock.Time) {
	t.Helper()
	refs, shares := map[*CQ]int{}, map[*SRQ]int{}
	for _, q := range n.e.Tables.order {
		if q.dead || n.e.Tables.qps[q.Num()] != q {
			t.Fatalf("queue pair %#x is listed and not alive", q.Num())
		}
		if at := q.q.Deadline(); at != q.keyed && !q.touched {
			t.Fatalf("queue pair %#x wants to be called at %v, the heap says %v", q.Num(), at, q.keyed)
		}
		refs[q.send]++
		refs[q.recv]++
		shares[q.srq]++
		a := q.q.Query()
		if c := q.q.Config(); a.SendQueued > c.MaxSendWR || a.RecvQueued > c.MaxRecvWR {
			t.Fatalf("%d sends and %d receives queued, the limits are %d and %d", a.SendQueued, a.RecvQueued, c.MaxSendWR, c.MaxRecvWR)
		}
		if dead := a.State == verbs.StateError && a.SendQueued > 0; dead {
			t.Fatalf("%d sends queued in the error state", a.SendQueued)
		}
	}
	for _, c := range n.e.Tables.cqs {
		if c.refs != refs[c] || c.q.Len() > c.q.Cap() || c.overflowed {
			t.Fatalf("CQ %d: %d uses, want %d; %d of %d entries", c.ID(), c.refs, refs[c], c.q.Len(), c.q.Cap())
		}
	}
	for _, s := range n.e.Tables.srqs {
		if s.refs != shares[s] {
			t.Fatalf("SRQ %d: %d uses, want %d", s.num, s.refs, shares[s])
		}
	}
	if n.e.Tables.IsUp() != (n.e.Tables.env != nil) {
		t.Fatal("up without tables")
	}
}

// checkMemory checks the invariants of the NIC's memory.
func (n *anyNIC) checkMemory(t *testing.T) {
	t.Helper()
	refs, used := map[*DM]int{}, 0
	for m := range n.e.Tables.mrs {
		refs[m.dm]++
	}
	for d := range n.e.Tables.dms {
		if used += d.Len(); d.refs != refs[d] {
			t.Fatalf("device memory: %d uses, want %d", d.refs, refs[d])
		}
	}
	if used != n.e.Tables.dmUsed {
		t.Fatalf("%d bytes of device memory in use, counted %d", used, n.e.Tables.dmUsed)
	}
}

// Two applications make random calls in random order, valid or not, over a lossy cable: no call
// panics, the tables agree with each other, and no deadline stays due without end.
func TestAnyOrder(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		if anyOrder(t, seed); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func anyOrder(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	small := func(c *Config) {
		c.Window, c.Limits = 1+r.IntN(9), Limits{QPs: 6, CQs: 4, PDs: 3, MRs: 6, AHs: 3, SRQs: 2, DeviceMemory: 200, AsyncEvents: 4}
	}
	n := [2]*anyNIC{
		{e: newEngine(t, "a", seed, macA, small, ipA), gid: verbs.GIDOf(ipB)},
		{e: newEngine(t, "b", seed+1, macB, small, ipB), gid: verbs.GIDOf(ipA)},
	}
	if r.IntN(4) == 0 { // each is connected to itself
		n[0].gid, n[1].gid = verbs.GIDOf(ipA), verbs.GIDOf(ipB)
	}
	now := clock.Time(0)
	var in packetio.Batch
	for range 600 {
		i := r.IntN(2)
		me, peer := n[i], n[1-i]
		if me.gid == me.e.cfg.GIDs[0] {
			peer = me
		}
		switch k := r.IntN(100); {
		case k < 15:
			me.make(r)
		case k < 20:
			me.end(r)
		case k < 45:
			me.modify(r, now, peer)
		case k < 80:
			me.post(r, now, peer)
		case k < 90:
			if c, ok := one(r, me.cqs); ok {
				if q, err := c.Queue(); err == nil {
					q.Poll(make([]verbs.WC, r.IntN(20)))
				}
			}
		case k < 91 && r.IntN(4) == 0:
			me.e.Down(now)
			me.e.Up()
		}
		for k, x := range n {
			in, x.out = x.out, in
			x.out.Reset()
			for _, f := range in.Frames {
				if r.IntN(12) > 0 {
					n[1-k].e.Frame(now, 0, f, &n[1-k].out)
				}
			}
			if r.IntN(2) == 0 {
				n[1-k].e.EndBatch(now, &n[1-k].out)
			}
		}
		if r.IntN(3) == 0 {
			now = now.Add(time.Duration(r.IntN(3_000_000)))
		}
		for _, x := range n {
			due(t, x, now, r)
			x.check(t, now)
			x.checkMemory(t)
		}
	}
	for _, x := range n {
		for x.e.Tables.IsUp() && len(x.e.Tables.order) > 0 {
			if err := x.e.Tables.order[0].Destroy(); err != nil {
				t.Fatal(err)
			}
		}
		if at := x.e.Deadline(); at > now && at != clock.Never {
			t.Fatalf("a NIC without queue pairs wants to be called at %v", at)
		}
	}
}

// due ticks until no deadline is due. If the frames fill the batch, the other deadlines stay due.
func due(t *testing.T, x *anyNIC, now clock.Time, r *rand.Rand) {
	t.Helper()
	for ticks := 0; x.e.Deadline() <= now; ticks++ {
		before := len(x.out.Frames)
		x.e.Tick(now, &x.out)
		if len(x.out.Frames) >= maxTickFrames {
			return
		}
		if ticks > 1000 && len(x.out.Frames) == before {
			t.Fatalf("due at %v without end at %v", x.e.Deadline(), now)
		}
	}
}
