package engine

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var hostileSeed = flag.Uint64("hostile-seed", 0, "run TestHostileNetwork for this seed only")

var (
	macM = wire.MAC{2, 0, 0, 0, 0, 3}
	ipM  = netip.MustParseAddr("10.77.0.3")
)

// The layout of a side's memory: the words and the area that its peer changes, then its own
// buffers.
const (
	hostileWords   = 0
	hostileWord    = 4
	hostileArea    = 4096
	hostileAreaLen = 8 << 10
	hostileOwn     = hostileArea + hostileAreaLen
	hostileSlot    = 4096
	hostileDepth   = 8
)

// hostileNet is two NICs on a network that loses frames, and that keeps a copy of each frame and
// may deliver it again at any later time. A third machine sends guessed frames.
type hostileNet struct {
	t     *testing.T
	r     *rand.Rand
	now   clock.Time
	s     [2]*side
	air   [2][]hostileFrame // frames to side i, in order
	log   []hostileFrame
	loss  float64
	again float64
	forge float64
}

type hostileFrame struct {
	at   clock.Time
	to   int
	data []byte
}

func (n *hostileNet) take(from int) {
	s := n.s[from]
	for _, f := range s.out.Frames {
		h := hostileFrame{at: n.now.Add(time.Microsecond), to: 1 - from, data: bytes.Clone(f.Data)}
		n.log = append(n.log, h)
		if n.r.Float64() >= n.loss {
			n.air[h.to] = append(n.air[h.to], h)
		}
	}
	s.out.Reset()
}

// guess makes a frame to side i that does not belong to the connection: from another machine, or
// with the peer's address and an unexpected PSN.
func (n *hostileNet) guess(to int) []byte {
	var f wire.Frame
	if err := wire.ParseFrame(n.log[n.r.IntN(len(n.log))].data, &f); err != nil {
		n.t.Fatal(err)
	}
	me, peer := n.s[to], n.s[1-to]
	f.Eth.Dst, f.Eth.Src = me.e.cfg.MAC, peer.e.cfg.MAC
	f.IPv4.Src, f.IPv4.Dst = peer.e.cfg.GIDs[0].Addr().As4(), me.e.cfg.GIDs[0].Addr().As4()
	f.BTH.DestQP = me.qp.Num()
	q := me.qp.q.Query()
	if n.r.IntN(2) == 0 {
		f.Eth.Src, f.IPv4.Src = macM, ipM.As4()
		f.BTH.PSN = q.RecvPSN.Add(n.r.IntN(3) - 1)
		return f.AppendTo(nil)
	}
	f.Payload = bytes.Repeat([]byte{0xee}, len(f.Payload))
	f.AtomicAck = 0xeeee
	if f.BTH.Opcode.Is(wire.OpRequest) {
		f.BTH.PSN = q.RecvPSN.Add(1 + n.r.IntN(1<<23-1)) // ahead
		if n.r.IntN(2) == 0 {
			f.BTH.PSN = q.RecvPSN.Add(-1 - n.r.IntN(1<<23)) // behind
		}
	} else {
		f.AETH.Syndrome = []wire.Syndrome{wire.AckNoCredits, wire.NakInvalid, wire.NakRemoteAccess, wire.NakPSNSequence, wire.RNRNak | 3}[n.r.IntN(5)]
		f.BTH.PSN = q.SendPSN.Add(n.r.IntN(1 << 22)) // an answer to a request that was not sent
		if n.r.IntN(2) == 0 {
			f.BTH.PSN = q.SendPSN.Add(-1<<16 - n.r.IntN(1<<22)) // an answer to a request that completed long ago
		}
	}
	return f.AppendTo(nil)
}

func (n *hostileNet) deliver(to int, data []byte) {
	s := n.s[to]
	s.e.Frame(n.now, 0, packetio.Frame{Data: bytes.Clone(data)}, &s.out)
	if n.r.IntN(3) == 0 {
		s.e.EndBatch(n.now, &s.out)
	}
}

// step delivers a frame or advances the time. It returns false if nothing is in flight or due.
func (n *hostileNet) step() bool {
	n.take(0)
	n.take(1)
	for to := range n.s {
		if len(n.log) > 0 && n.r.Float64() < n.again {
			h := n.log[n.r.IntN(len(n.log))]
			n.deliver(h.to, h.data)
		}
		if len(n.log) > 0 && n.r.Float64() < n.forge {
			n.deliver(to, n.guess(to))
		}
	}
	at := clock.Min(n.s[0].e.Deadline(), n.s[1].e.Deadline())
	for _, q := range n.air {
		if len(q) > 0 {
			at = clock.Min(at, q[0].at)
		}
	}
	if at == clock.Never {
		return false
	}
	n.now = max(n.now, at)
	for i, s := range n.s {
		for len(n.air[i]) > 0 && n.air[i][0].at <= n.now && n.r.IntN(4) > 0 {
			h := n.air[i][0]
			n.air[i] = n.air[i][1:]
			n.deliver(i, h.data)
		}
		if n.r.IntN(20) == 0 || s.e.Deadline() <= n.now {
			s.e.Tick(n.now, &s.out)
		}
	}
	return true
}

// hostileUser posts work on a side and computes the expected results.
type hostileUser struct {
	n        *hostileNet
	me, peer *side
	left     int
	ops      []verbs.SendWR
	want     [][]byte // expected result of each READ and atomic
	done     int
	sends    [][]byte
	recvs    int
	got      int
	area     []byte
	words    [hostileWord]uint64
}

func (u *hostileUser) post() {
	r := u.n.r
	for u.left > 0 && len(u.ops)-u.done < hostileDepth && r.IntN(3) > 0 {
		u.left--
		i := len(u.ops)
		slot := hostileOwn + i%hostileDepth*hostileSlot
		size := []int{0, 1, 255, 256, 257, r.IntN(hostileSlot), hostileSlot}[r.IntN(7)]
		wr := verbs.SendWR{ID: uint64(i), Flags: verbs.Signalled | verbs.Fence, RKey: u.peer.key, SGL: []verbs.SGE{u.me.sge(slot, size)}}
		at := r.IntN(hostileAreaLen - size + 1)
		wr.RemoteAddr = u.peer.base + hostileArea + uint64(at)
		var want []byte
		switch k := r.IntN(8); {
		case k < 2:
			wr.Op = verbs.OpWrite
			fill(u.me.buf[slot:slot+size], byte(r.Uint32()))
			copy(u.area[at:], u.me.buf[slot:slot+size])
		case k < 4:
			wr.Op = verbs.OpRead
			fill(u.me.buf[slot:slot+size], 0x77)
			want = bytes.Clone(u.area[at : at+size])
		case k < 5 && len(u.sends)-u.got < 4:
			wr.Op = verbs.OpSend
			fill(u.me.buf[slot:slot+size], byte(i))
			u.sends = append(u.sends, bytes.Clone(u.me.buf[slot:slot+size]))
		default:
			w := r.IntN(hostileWord)
			wr.Op, wr.CompareAdd, wr.Swap = verbs.OpFetchAdd, uint64(r.IntN(100)), uint64(r.IntN(3))
			wr.RemoteAddr, wr.SGL[0].Length = u.peer.base+hostileWords+uint64(8*w), 8
			want = binary.NativeEndian.AppendUint64(nil, u.words[w])
			if r.IntN(2) == 0 {
				wr.Op, wr.CompareAdd = verbs.OpCmpSwap, uint64(r.IntN(3))
				if u.words[w] == wr.CompareAdd {
					u.words[w] = wr.Swap
				}
			} else {
				u.words[w] += wr.CompareAdd
			}
		}
		u.ops, u.want = append(u.ops, wr), append(u.want, want)
		if err := u.me.qp.PostSend(u.n.now, []verbs.SendWR{wr}, &u.me.out); err != nil {
			u.n.t.Fatal(err)
		}
	}
	for u.recvs < u.got+4 && r.IntN(3) == 0 {
		slot := hostileOwn + (hostileDepth+u.recvs%4)*hostileSlot
		if err := u.peer.qp.PostRecv([]verbs.RecvWR{{ID: uint64(u.recvs), SGL: []verbs.SGE{u.peer.sge(slot, hostileSlot)}}}); err != nil {
			u.n.t.Fatal(err)
		}
		u.recvs++
	}
}

// completed handles a completion of me's send queue.
func (u *hostileUser) completed(wc verbs.WC) error {
	if wc.Status != verbs.Success || wc.ID != uint64(u.done) {
		return fmt.Errorf("completion %+v, want number %d of %v", wc, u.done, u.ops[u.done].Op)
	}
	wr := &u.ops[u.done]
	if want := u.want[u.done]; want != nil {
		off := int(wr.SGL[0].Addr - u.me.base)
		if got := u.me.buf[off : off+len(want)]; !bytes.Equal(got, want) {
			return fmt.Errorf("%v %d brought other bytes", wr.Op, u.done)
		}
	}
	u.done++
	return nil
}

// received handles a completion of the peer's receive queue.
func (u *hostileUser) received(wc verbs.WC) error {
	if wc.Status != verbs.Success || wc.ID != uint64(u.got) || u.got >= len(u.sends) || int(wc.ByteLen) != len(u.sends[u.got]) {
		return fmt.Errorf("receive %+v, want number %d of %d", wc, u.got, len(u.sends))
	}
	slot := hostileOwn + (hostileDepth+u.got%4)*hostileSlot
	if !bytes.Equal(u.peer.buf[slot:slot+len(u.sends[u.got])], u.sends[u.got]) {
		return fmt.Errorf("receive %d has other bytes", u.got)
	}
	u.got++
	return nil
}

func (u *hostileUser) finished() bool { return u.left == 0 && u.done == len(u.ops) }

func (u *hostileUser) verdict() error {
	if !bytes.Equal(u.peer.buf[hostileArea:hostileArea+hostileAreaLen], u.area) {
		return fmt.Errorf("the written memory differs")
	}
	for i, want := range u.words {
		if got := binary.NativeEndian.Uint64(u.peer.buf[hostileWords+8*i:]); got != want {
			return fmt.Errorf("word %d is %d, want %d", i, got, want)
		}
	}
	return nil
}

// Two queue pairs make two connections, one after the other, on a network that loses, repeats and
// invents frames: every byte is right, every atomic is executed once, and all work completes.
func TestHostileNetwork(t *testing.T) {
	if *hostileSeed != 0 {
		hostile(t, *hostileSeed)
		return
	}
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		if hostile(t, seed); t.Failed() {
			t.Fatalf("replay: go test ./softrnic/engine -run TestHostileNetwork -hostile-seed %d", seed)
		}
	}
}

func hostile(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 99))
	pick := func(v ...float64) float64 { return v[r.IntN(len(v))] }
	small := func(c *Config) { c.Window, c.Acks.Every = 1+r.IntN(40), 1+r.IntN(10) }
	n := &hostileNet{t: t, r: r, loss: pick(0, 0.02, 0.1), again: pick(0, 0.05, 0.3), forge: pick(0, 0.1, 0.3)}
	n.s[0] = newSide(t, newEngine(t, "a", seed, macA, small, ipA))
	n.s[1] = newSide(t, newEngine(t, "b", seed+1000, macB, small, ipB))
	tear := pick(0, 0, 0.4)
	for i, x := range n.s {
		x.e.Tables.Mem().SetTear(mem.SeededTear(seed+uint64(i), tear, 30*time.Microsecond))
	}
	users := [2]*hostileUser{
		{n: n, me: n.s[0], peer: n.s[1], area: make([]byte, hostileAreaLen)},
		{n: n, me: n.s[1], peer: n.s[0], area: make([]byte, hostileAreaLen)},
	}
	for range 2 {
		n.connect()
		for _, u := range users {
			u.left, u.recvs = 1+r.IntN(60), u.got
		}
		n.run(users)
		for i, u := range users {
			if err := u.verdict(); err != nil {
				t.Errorf("side %d: %v", i, err)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// connect brings both queue pairs from any state to RTS, with random PSNs, so that late packets of
// one connection do not count in the next.
func (n *hostileNet) connect() {
	mtu := []verbs.MTU{verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU4096}[n.r.IntN(4)]
	psn := [2]wire.PSN{wire.PSN(n.r.IntN(1 << 24)), wire.PSN(n.r.IntN(1 << 24))}
	if len(n.log) == 0 {
		psn[1] = 0xffffff - wire.PSN(n.r.IntN(200)) // so that PSNs wrap
	}
	depth := 1 + n.r.IntN(hostileDepth)
	for i, s := range n.s {
		peer := n.s[1-i]
		rtr := verbs.ToRTR{DestQPN: peer.qp.Num(), DestGID: peer.e.cfg.GIDs[0], RecvPSN: psn[1-i], PathMTU: mtu, MinRNRTimer: 12, MaxDestRdAtomic: depth}
		rts := verbs.ToRTS{SendPSN: psn[i], Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: depth}
		for _, err := range []error{
			s.qp.ToReset(), s.qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}),
			s.qp.ToRTR(n.now, rtr), s.qp.ToRTS(n.now, rts),
		} {
			if err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// maxHostileSteps is far more than any seed needs.
const maxHostileSteps = 1_000_000

// run runs both users until all work is complete.
func (n *hostileNet) run(users [2]*hostileUser) {
	for range maxHostileSteps {
		for i, u := range users {
			u.post()
			for _, wc := range u.me.poll(n.t) {
				f := u.completed
				if wc.Opcode == verbs.WCRecv && wc.Status == verbs.Success {
					f = users[1-i].received
				}
				if err := f(wc); err != nil {
					n.t.Errorf("at %v, side %d: %v", n.now, i, err)
					return
				}
			}
		}
		if !n.step() && users[0].finished() && users[1].finished() {
			return
		}
	}
	n.t.Errorf("stuck at %v: %+v and %+v", n.now, n.s[0].qp.q.Query(), n.s[1].qp.q.Query())
}
