package packetbuffer

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// course is a switch that has only a handler of action buffer, with a server behind port 2 whose
// answers the benchmark makes.
type course struct {
	pipeline.Program
	m       *Machine
	sw      *pipeline.Switch
	now     clock.Time
	out     packetio.Batch
	request wire.Frame
	answer  wire.Frame
	memory  []byte // of the server
	packets int    // of the server to the switch
	took    time.Duration
}

// do runs a part that is measured.
func (r *course) do(f func()) {
	begin := time.Now()
	f()
	r.took += time.Since(begin)
}

func (r *course) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	if p.Own {
		return r.m.Owned(c, p)
	}
	return pipeline.Forward()
}
func (r *course) Tick(c *pipeline.Ctx) { r.m.Tick(c) }
func (r *course) Deadline() clock.Time { return r.m.Deadline() }
func (r *course) Egress(c *pipeline.Ctx, port int, f packetio.Frame) bool {
	return r.m.Queue(c, port, f)
}
func (r *course) Queued() *pipeline.QueuedPorts { return r.m.marks }

const (
	courseEntries = 4096
	// slowRate is the rate of the port while frames go to the ring.
	slowRate = "8Kbit"
)

func newCourse(b *testing.B, rate string) *course {
	r := &course{Program: noProgram{}, now: 1, memory: make([]byte, 1<<24)}
	r.m = Kind.New(&handler.Env{Port: func(netip.Addr) int { return portOfHost }}).(*Machine)
	var err error
	if r.sw, err = pipeline.New(pipeline.Config{Ports: 3, Program: r, Self: pipeline.Self{MAC: switchMAC, Addrs: []netip.Addr{switchIP}}}); err != nil {
		b.Fatal(err)
	}
	for port, mac := range map[int]byte{portOfHost: 1, 2: 3} {
		r.sw.Frame(r.now, port, packetio.Frame{Data: append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, mac}, make([]byte, 50)...)}, &r.out)
	}
	r.rule(b, rate)
	g := memgrant.Grant{Region: memgrant.Region{Addr: regionAddr, RKey: regionKey, Len: len(r.memory)}}
	s := switchconn.Shared{Key: r.m.Links.All[0].Key(), Generation: 1, ServerQPN: 0x55, OwnQPN: ownQPN, MTU: 4096, Depth: 16, Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind})}
	s.To.Eth = wire.Ethernet{Src: switchMAC, Dst: serverMAC}
	s.To.IPv4 = wire.IPv4{Src: switchIP.As4(), Dst: serverIP.As4(), TTL: 64, DF: true}
	s.To.BTH = wire.BTH{PKey: wire.DefaultPKey}
	r.out.Reset()
	r.sw.Step(r.now, &r.out, func(c *pipeline.Ctx) { r.m.Attach(c, s) })
	r.answer = wire.Frame{Eth: wire.Ethernet{Src: serverMAC, Dst: switchMAC}, IPv4: wire.IPv4{Src: serverIP.As4(), Dst: switchIP.As4(), TTL: 64, DF: true}}
	return r
}

func (r *course) rule(b *testing.B, rate string) {
	set, err := ruleSet(b, "server=cn0 action=buffer ring=ms0 high=1 low=1 entry=1552 depth=16 entries=4096 rate="+rate)
	if err != nil {
		b.Fatal(err)
	}
	r.m.SetRules(set)
}

// serve executes the requests that have left, and returns how many there were. The server answers a
// READ, and a WRITE that asks for it. It passes the answers to the switch.
func (r *course) serve(b *testing.B) (n int) {
	var answers [][]byte
	for _, x := range r.out.Frames {
		if x.Port != 2 {
			continue
		}
		f := &r.request
		if err := wire.ParseFrame(x.Data, f); err != nil {
			b.Fatal(err)
		}
		n++
		at := r.memory[f.RETH.VA-regionAddr:][:f.RETH.Length]
		a := &r.answer
		a.BTH = wire.BTH{Opcode: wire.RCAck, PKey: wire.DefaultPKey, DestQP: ownQPN, PSN: f.BTH.PSN}
		a.AETH, a.Payload = wire.AETH{Syndrome: wire.AckNoCredits}, nil
		if f.BTH.Opcode == wire.RCReadRequest {
			a.BTH.Opcode, a.Payload = wire.RCReadResponseOnly, at
		} else {
			copy(at, f.Payload)
		}
		if f.BTH.Opcode == wire.RCReadRequest || f.BTH.AckReq {
			answers = append(answers, a.AppendTo(nil))
		}
	}
	r.out.Reset()
	r.do(func() {
		for _, a := range answers {
			r.sw.Frame(r.now, 2, packetio.Frame{Data: a}, &r.out)
		}
	})
	r.packets += len(answers)
	return n
}

// frame is a frame of 1,500 bytes to the host.
func courseFrame() packetio.Frame {
	return packetio.Frame{Data: append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, make([]byte, 1486)...)}
}

const courseBurst = 32

// BenchmarkStore measures what the switch does for a frame of 1,500 bytes that goes to the ring, and
// for the server's answers.
func BenchmarkStore(b *testing.B) {
	f := courseFrame()
	var took time.Duration
	frames, packets := 0, 0
	for frames < b.N {
		r := newCourse(b, slowRate)
		for range 2 {
			r.sw.Frame(r.now, 0, f, &r.out)
		}
		r.serve(b)
		r.took, r.packets = 0, 0
		for range courseEntries / courseBurst / 2 {
			r.do(func() {
				for range courseBurst {
					r.sw.Frame(r.now, 0, f, &r.out)
				}
			})
			if n := r.serve(b); n != courseBurst {
				b.Fatalf("%d requests; %+v", n, r.m.Stats())
			}
			frames += courseBurst
		}
		took, packets = took+r.took, packets+r.packets
	}
	b.ReportMetric(float64(took)/float64(frames), "ns/frame")
	b.ReportMetric(float64(packets)/float64(frames), "answers/frame")
}

// BenchmarkLoad measures what the switch does for a frame of 1,500 bytes that comes back from the
// ring and leaves.
func BenchmarkLoad(b *testing.B) {
	f := courseFrame()
	var took time.Duration
	frames := 0
	for frames < b.N {
		r := newCourse(b, slowRate)
		for range courseEntries / courseBurst / 2 {
			for range courseBurst {
				r.sw.Frame(r.now, 0, f, &r.out)
			}
			r.serve(b)
		}
		r.rule(b, "100Gbit")
		r.now, r.took = r.now.Add(3*time.Second), 0
		for rounds := 0; r.m.Stats().Loaded < r.m.Stats().Stored; rounds++ {
			if rounds > 10*courseEntries {
				b.Fatalf("the frames do not come back: %+v", r.m.Stats())
			}
			r.now += 4000
			r.do(func() { r.sw.Tick(r.now, &r.out) })
			r.serve(b)
		}
		took, frames = took+r.took, frames+int(r.m.Stats().Loaded)
	}
	b.ReportMetric(float64(took)/float64(frames), "ns/frame")
}
