package packetbuffer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// lossy is a handler whose server is behind a link that loses packets, doubles them and changes their
// order. The server's NIC may restart, and forgets its connection then.
type lossy struct {
	*wired
	r    *rand.Rand
	loss float64
	// requests and answers are the packets on the link to the server and on the link from it. sound:
	// the link to the server has no faults.
	requests, answers []wire.Frame
	sound             bool

	generation uint32
	qpn        wire.QPN // of the server; 0 means that its NIC has restarted
	expected   wire.PSN // of the server's queue pair
	refused    bool     // a NAK for the expected PSN is on its way

	frames          [][]byte // those for the host
	next            int      // the least index of a frame that may leave
	longest, repeat int      // bytes of the longest READ; requests that came again
}

func newLossy(t *testing.T, r *rand.Rand) *lossy {
	t.Helper()
	l := &lossy{r: r, loss: []float64{0, 0.01, 0.1}[r.IntN(3)], sound: r.IntN(3) == 0}
	l.wired = newWired(t, fmt.Sprintf("ring=ms0 rate=%dMbit high=%d low=1 entries=%d entry=%d", 5+r.IntN(40), 1+r.IntN(6), 1+r.IntN(60), 512*(1+r.IntN(2))))
	for at := range l.memory {
		l.memory[at] = byte(r.Uint32())
	}
	l.connect()
	return l
}

// step runs a step of the switch.
func (l *lossy) step(f func(c *pipeline.Ctx)) {
	l.t.Helper()
	var out packetio.Batch
	l.sw.Step(l.now, &out, f)
	for _, x := range out.Frames {
		if x.Port == portOfHost {
			l.leaves(x)
			continue
		}
		var p wire.Frame
		if wire.ParseFrame(x.Data, &p) != nil || !wire.CheckICRC(x.Data) {
			l.t.Fatalf("a damaged packet to the server: % x", x.Data)
		}
		p.Payload = bytes.Clone(p.Payload)
		l.put(&l.requests, &p, l.sound)
	}
}

// leaves checks a frame that has left to the host.
func (l *lossy) leaves(x packetio.Frame) {
	l.t.Helper()
	i := int(binary.BigEndian.Uint32(x.Data[14:]))
	if i < l.next || i >= len(l.frames) || !bytes.Equal(x.Data, l.frames[i]) || x.SegSize != len(x.Data) {
		l.t.Fatalf("frame %d of %d bytes leaves, at least %d is next", i, len(x.Data), l.next)
	}
	l.next = i + 1
}

// put puts a packet on a link.
func (l *lossy) put(link *[]wire.Frame, p *wire.Frame, sound bool) {
	fault := func() bool { return !sound && l.r.Float64() < l.loss }
	if fault() {
		return
	}
	*link = append(*link, *p)
	if fault() {
		*link = append(*link, *p)
	}
	if n := len(*link); fault() {
		i := l.r.IntN(n)
		(*link)[i], (*link)[n-1] = (*link)[n-1], (*link)[i]
	}
}

// serve lets the server handle the next packet on its link.
func (l *lossy) serve() {
	p := l.requests[0]
	l.requests = l.requests[1:]
	if p.BTH.DestQP != l.qpn {
		return
	}
	d := wire.Diff(p.BTH.PSN, l.expected)
	at, n := p.RETH.VA-regionAddr, uint64(p.RETH.Length)
	switch {
	case d > 0:
		if !l.refused {
			l.refused = true
			l.answer(wire.RCAck, l.expected, wire.NakPSNSequence, nil)
		}
		return
	case d < 0:
		l.repeat++
	default:
		l.refused, l.expected = false, l.expected.Next()
	}
	switch {
	case p.BTH.Opcode == wire.RCReadRequest:
		l.longest = max(l.longest, int(n))
		l.answer(wire.RCReadResponseOnly, p.BTH.PSN, wire.AckNoCredits, bytes.Clone(l.memory[at:][:n]))
		return
	case d == 0:
		copy(l.memory[at:][:n], p.Payload)
	}
	l.answer(wire.RCAck, l.expected.Add(-1), wire.AckNoCredits, nil)
}

func (l *lossy) answer(op wire.Opcode, psn wire.PSN, s wire.Syndrome, payload []byte) {
	var a wire.Frame
	a.IPv4 = wire.IPv4{Src: serverIP.As4(), Dst: switchIP.As4(), TTL: 64}
	a.BTH = wire.BTH{Opcode: op, PKey: wire.DefaultPKey, DestQP: ownQPN + wire.QPN(l.generation), PSN: psn}
	a.AETH, a.Payload = wire.AETH{Syndrome: s}, payload
	l.put(&l.answers, &a, false)
}

// hear lets the switch handle the next packet of the server.
func (l *lossy) hear() {
	a := l.answers[0]
	l.answers = l.answers[1:]
	l.step(func(c *pipeline.Ctx) { l.m.Owned(c, &pipeline.Parsed{Frame: a}) })
}

// connect makes a connection of any path MTU that fits. The former one has ended.
func (l *lossy) connect() {
	l.generation++
	l.qpn, l.expected, l.refused = 1+wire.QPN(l.r.IntN(1<<24-1)), wire.PSN(l.r.IntN(1<<24)), false
	l.requests, l.answers, l.failed = nil, nil, nil
	g := memgrant.Grant{Region: memgrant.Region{Addr: regionAddr, RKey: regionKey, Len: len(l.memory)}}
	s := switchconn.Shared{
		Key: l.m.Links.All[0].Key(), Generation: l.generation, ServerQPN: l.qpn, OwnQPN: ownQPN + wire.QPN(l.generation),
		SendPSN: l.expected, RecvPSN: l.expected, MTU: 1024 << l.r.IntN(3), Depth: 1 + l.r.IntN(4),
		Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.To.Eth = wire.Ethernet{Src: switchMAC, Dst: serverMAC}
	s.To.IPv4 = wire.IPv4{Src: switchIP.As4(), Dst: serverIP.As4(), TTL: 64, DF: true}
	s.To.BTH = wire.BTH{PKey: wire.DefaultPKey, DestQP: l.qpn}
	l.step(func(c *pipeline.Ctx) {
		if !l.m.Attach(c, s) {
			l.t.Error("the connection is not used")
		}
	})
}

// restart lets the server's NIC restart, with or without its memory. The switch learns that at once,
// or because no answer comes.
func (l *lossy) restart() {
	if l.qpn = 0; l.r.IntN(2) == 0 {
		clear(l.memory)
	}
	if l.r.IntN(2) == 0 {
		l.step(func(c *pipeline.Ctx) { l.m.Detach(c, l.m.Links.All[0].Key(), l.generation) })
		l.connect()
	}
}

// send sends a frame of up to 9 KB to the host.
func (l *lossy) send() {
	f := make([]byte, 18+l.r.IntN([]int{100, 1500, 9000}[l.r.IntN(3)]))
	for i := range f {
		f[i] = byte(l.r.Uint32())
	}
	binary.BigEndian.PutUint16(f[12:], 0x88b5)
	binary.BigEndian.PutUint32(f[14:], uint32(len(l.frames)))
	l.frames = append(l.frames, f)
	l.step(func(c *pipeline.Ctx) { l.m.Queue(c, portOfHost, packetio.Frame{Data: f, SegSize: len(f)}) })
}

// pass lets time pass until `to`, or until the next deadline.
func (l *lossy) pass(to time.Duration) {
	l.now = max(l.now, min(l.m.Deadline(), l.now.Add(to)))
	if l.m.Deadline() <= l.now {
		l.step(l.m.Tick)
	}
	if len(l.failed) > 0 {
		l.connect()
	}
}

// drain lets all frames leave.
func (l *lossy) drain() {
	for range 100_000 {
		local, remote := l.m.Waiting()
		switch {
		case len(l.requests) > 0:
			l.serve()
		case len(l.answers) > 0:
			l.hear()
		case local+remote == 0:
			return
		default:
			l.pass(time.Second)
		}
	}
	l.t.Fatalf("frames stay: %+v", l.m.Stats())
}

// Frames of any length go to the ring and come back over a link with faults, in requests that several
// entries share. What leaves is right, once and in order, and the counters add up. None is lost if
// each WRITE arrives and the server's NIC does not restart.
func TestRingOverABadLink(t *testing.T) {
	longest, repeat, restarts, stored, lost := 0, 0, 0, uint64(0), uint64(0)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 91))
		l := newLossy(t, r)
		crashes := r.IntN(3) == 0
		for range 5000 {
			switch n := r.IntN(400); {
			case n < 50:
				l.send()
			case n < 200 && len(l.requests) > 0:
				l.serve()
			case n < 350 && len(l.answers) > 0:
				l.hear()
			case n == 399 && crashes:
				restarts++
				l.restart()
			default:
				l.pass(time.Duration(r.IntN(100)) * time.Microsecond)
			}
		}
		l.drain()
		st := l.m.Stats()
		if st.Frames != uint64(len(l.frames)) || st.Stored != st.Loaded+st.Lost ||
			st.Frames != st.Sent+st.Lost+st.Full+st.Blocked+st.Long {
			t.Fatalf("seed %d: %d frames, %+v", seed, len(l.frames), st)
		}
		if (l.loss == 0 || l.sound) && !crashes && st.Lost > 0 {
			t.Fatalf("seed %d: frames are lost although each WRITE arrived: %+v", seed, st)
		}
		longest, repeat, stored, lost = max(longest, l.longest), repeat+l.repeat, stored+st.Stored, lost+st.Lost
	}
	if longest != 4096 || repeat < 1000 || restarts < 30 || stored < 4000 || lost < 100 {
		t.Errorf("READs of up to %d bytes, %d requests came again, %d restarts, %d frames stored, %d lost: the test shows little",
			longest, repeat, restarts, stored, lost)
	}
}
