package transport

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// tornReads runs one peer of a NIC that WRITEs generations into 8 lines and another one that READs
// them, over a wire with delays, and returns how many READs returned more than one generation. A
// line is never torn.
func tornReads(t *testing.T, seed uint64, tear mem.TearFunc) (torn, reads int) {
	t.Helper()
	const size = 8 * mem.LineSize
	server := newSide(t, "server", seed, 4096, Config{QPN: 0x20})
	second := *server // another queue pair of the same NIC
	var err error
	cfg := server.qp.Config()
	cfg.QPN = 0x21
	if second.qp, err = New(server.env, cfg); err != nil {
		t.Fatal(err)
	}
	server.env.Mem.SetTear(tear)
	l := defaultLink
	l.mtu = verbs.MTU1024
	writer, reader := newSide(t, "writer", seed+1, 4096, Config{QPN: 0x11}), newSide(t, "reader", seed+2, 4096, Config{QPN: 0x12})
	connect(t, writer, server, l)
	connect(t, reader, &second, l)
	r := rand.New(rand.NewPCG(seed, 5))
	w1, w2 := &badWire{r: r}, &badWire{r: r}
	generation := byte(0)
	var wc [1]verbs.WC
	for range 2000 {
		if writer.qp.Query().SendQueued == 0 {
			generation++
			for i := range size {
				writer.buf[i] = generation
			}
			wr := verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{writer.sge(0, size)}, RemoteAddr: server.mem.Base(), RKey: server.mem.RKey()}
			if err := writer.qp.PostSend(w1.now, &wr, &writer.out); err != nil {
				t.Fatal(err)
			}
		}
		if reader.qp.Query().SendQueued == 0 {
			wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{reader.sge(0, size)}, RemoteAddr: server.mem.Base(), RKey: server.mem.RKey()}
			if err := reader.qp.PostSend(w2.now, &wr, &reader.out); err != nil {
				t.Fatal(err)
			}
		}
		until := w1.now.Add(time.Duration(r.Int64N(3000)))
		for w1.step(writer, server, until) {
		}
		for w2.step(reader, &second, until) {
		}
		if reader.scq.Poll(wc[:]) == 0 {
			continue
		}
		reads++
		mixed := false
		for line := 0; line < size; line += mem.LineSize {
			for i := range mem.LineSize {
				if reader.buf[line+i] != reader.buf[line] {
					t.Fatalf("seed %d: line %d is torn", seed, line/mem.LineSize)
				}
			}
			mixed = mixed || reader.buf[line] != reader.buf[0]
		}
		if mixed {
			torn++
		}
	}
	return torn, reads
}

// A READ during a WRITE returns a mixture of lines if the plan tears copies, and never without a
// plan. The same seed gives the same mixtures.
func TestTornReads(t *testing.T) {
	if torn, reads := tornReads(t, 1, nil); torn != 0 || reads < 100 {
		t.Errorf("without a plan %d of %d READs are torn", torn, reads)
	}
	plan := func() mem.TearFunc { return mem.SeededTear(9, 0.5, 10*time.Microsecond) }
	torn, reads := tornReads(t, 1, plan())
	if torn == 0 {
		t.Errorf("none of %d READs is torn", reads)
	}
	again, _ := tornReads(t, 1, plan())
	if torn != again {
		t.Errorf("%d READs torn, then %d with the same seed", torn, again)
	}
}

// The rest of a torn copy is due so long after the packet has come as the plan says.
func TestPauseOfATornWrite(t *testing.T) {
	const now, pause = clock.Time(5 * time.Millisecond), 10 * time.Microsecond
	a, b := newPair(t)
	b.env.Mem.SetTear(mem.SeededTear(9, 1, pause))
	for range 20 {
		wr := writeTo(b)
		wr.SGL = []verbs.SGE{a.sge(0, 4*mem.LineSize)}
		post(t, a, wr)
		a.deliver(now, b)
		if at := b.rest(); at != clock.Never && (at <= now || at > now.Add(pause)) {
			t.Fatalf("the rest is due at %v", at)
		} else if at != clock.Never {
			return
		}
		settle(t, now.Add(time.Second), a, b)
	}
	t.Error("no copy is torn")
}

// rest is when the rest of a torn copy is due.
func (s *side) rest() clock.Time {
	if !s.qp.rsp.answers.torn.active() {
		return clock.Never
	}
	return s.qp.rsp.answers.torn.until
}
