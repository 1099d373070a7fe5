package engine

import (
	"fmt"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// serviceCase is one way to SEND from a queue pair of p.a to one of p.b.
type serviceCase struct {
	name   string
	of     verbs.QPType
	shared bool
}

// serviceCases are in the order in which the results are compared.
var serviceCases = []serviceCase{
	{"rc", verbs.RC, false},
	{"rc-srq", verbs.RC, true},
	{"uc", verbs.UC, false},
	{"uc-srq", verbs.UC, true},
	{"ud", verbs.UD, false},
	{"ud-srq", verbs.UD, true},
}

// sender returns a function that runs a SEND of n bytes with its receive.
func (c serviceCase) sender(t testing.TB, n int) func(t testing.TB) {
	p := newPair(t, func(cfg *Config) { cfg.LinkMTU = 4200 })
	var srq *SRQ
	if c.shared {
		srq = newSRQ(t, p.b, verbs.SRQInit{MaxWR: 8})
	}
	from, to := sharedPair(t, p, srq, c.of)
	recv := []verbs.RecvWR{{SGL: []verbs.SGE{p.b.sge(0, n+verbs.GRHLen)}}}
	wr := []verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, n)}}}
	if c.of == verbs.UD {
		wr[0].AH = ahTo(t, p.a, verbs.AHAttr{DestGID: p.b.e.cfg.GIDs[0]})
		wr[0].RemoteQPN, wr[0].RemoteQKey = to.Num(), testQKey
	}
	post := to.PostRecv
	if c.shared {
		post = srq.PostRecv
	}
	sent, err := p.a.cq.Queue()
	if err != nil {
		t.Fatal(err)
	}
	received, err := p.b.cq.Queue()
	if err != nil {
		t.Fatal(err)
	}
	var wc [2]verbs.WC
	return func(t testing.TB) {
		p.now += 1000
		if post(recv) != nil || from.PostSend(p.now, wr, &p.a.out) != nil {
			t.Fatal("post")
		}
		for p.exchange(p.a, p.b)+p.exchange(p.b, p.a) > 0 {
		}
		if n := sent.Poll(wc[:]); n != 1 || wc[0].Status != verbs.Success {
			t.Fatalf("%d sends are complete, %v", n, wc[0].Status)
		}
		if n := received.Poll(wc[:]); n != 1 || wc[0].Status != verbs.Success {
			t.Fatalf("%d receives are complete, %v", n, wc[0].Status)
		}
	}
}

// A SEND allocates no memory, for each service and each kind of receive queue.
func TestServicesAllocateNothing(t *testing.T) {
	for _, c := range serviceCases {
		send := c.sender(t, 64)
		for range 100 {
			send(t) // buffers grow to their final size
		}
		if n := testing.AllocsPerRun(200, func() { send(t) }); n != 0 {
			t.Errorf("%s: %v allocations a message", c.name, n)
		}
	}
}

// BenchmarkServices measures a SEND and its receive in both NICs together, with codec, ICRC and
// acknowledgement. Compared with BenchmarkExchange it shows the cost of datagrams, unreliable
// connections and shared receives.
func BenchmarkServices(b *testing.B) {
	for _, size := range []int{64, 1024} {
		for _, c := range serviceCases {
			b.Run(fmt.Sprintf("%s/%d", c.name, size), func(b *testing.B) {
				send := c.sender(b, size)
				b.ReportAllocs()
				for b.Loop() {
					send(b)
				}
			})
		}
	}
}
