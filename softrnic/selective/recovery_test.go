package selective

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// path is a sender over a Recovery, a receiver that holds what is ahead, and a way between them that
// loses and reorders. One packet takes a microsecond to send, and the round trip is `trip`.
type path struct {
	t      *testing.T
	r      *rand.Rand
	rec    *Recovery
	now    clock.Time
	trip   time.Duration
	loss   float64 // of packets and of answers
	late   time.Duration
	oneway bool // answers are not lost
	total  int  // PSNs to send
	base   int  // the PSN of offset 0
	sent   []transmission
	copys  []int        // transmissions of each PSN
	held   map[int]bool // what the receiver holds
	want   int          // the receiver's expected PSN
	air    []flight
}

// transmission is what was sent: a PSN, and when.
type transmission struct {
	psn int
	at  clock.Time
}

// flight is something on the way: a packet to the receiver, or an answer that names the expected PSN
// and one that has arrived ahead of it (-1: none).
type flight struct {
	at     clock.Time
	psn    int
	answer bool
	want   int
	ahead  int
}

func newPath(t *testing.T, seed uint64, cfg Config, total int, trip time.Duration) *path {
	return &path{
		t: t, r: rand.New(rand.NewPCG(seed, 3)), rec: NewRecovery(cfg), trip: trip, total: total, copys: make([]int, total), held: map[int]bool{},
	}
}

func (p *path) launch(f flight) {
	if p.r.Float64() < p.loss && (!p.oneway || !f.answer) {
		return
	}
	f.at = p.now.Add(p.trip / 2)
	if p.late > 0 && !f.answer {
		f.at = f.at.Add(time.Duration(p.r.Int64N(int64(p.late))))
	}
	p.air = append(p.air, f)
}

// send sends one packet, if one may be sent.
func (p *path) send() {
	off, n := p.rec.NextLost(0, 1)
	switch {
	case n > 0 && p.rec.MayRepeat():
	case n == 0 && p.rec.Load() < p.rec.cfg.Window && p.rec.Room() > 0 && p.base+p.rec.Used() < p.total:
		off = p.rec.Used()
	default:
		return
	}
	p.rec.Sending(p.now, off, 1, false)
	psn := p.base + off
	p.copys[psn]++
	p.sent = append(p.sent, transmission{psn, p.now})
	p.launch(flight{psn: psn})
}

func (p *path) arrive(f flight) {
	if !f.answer {
		ahead := -1
		if f.psn >= p.want {
			p.held[f.psn] = true
			for p.held[p.want] {
				delete(p.held, p.want)
				p.want++
			}
			if f.psn > p.want {
				ahead = f.psn
			}
		}
		p.launch(flight{answer: true, want: p.want, ahead: ahead})
		return
	}
	if f.ahead >= p.base {
		p.rec.Holds(p.now, f.ahead-p.base, 1, true)
	}
	p.rec.Executed(p.now, f.want-p.base)
	for p.rec.Advance(p.now) {
		p.base++
	}
	p.rec.Look(p.now)
}

// run sends everything. It returns how long that took.
func (p *path) run() time.Duration {
	for p.base < p.total {
		if p.now > clock.Time(time.Minute) {
			p.t.Fatalf("stuck at %d of %d: used %d, counts %v, deadline %v", p.base, p.total, p.rec.Used(), p.rec.count, p.rec.Deadline())
		}
		p.step()
		p.check()
	}
	return time.Duration(p.now)
}

// step lets what is due arrive, sends one packet, and lets the time of a packet pass.
func (p *path) step() {
	for i := p.due(); i >= 0; i = p.due() {
		f := p.air[i]
		p.air = slices.Delete(p.air, i, i+1)
		p.arrive(f)
	}
	if p.rec.Deadline() <= p.now {
		p.rec.Tick(p.now)
	}
	p.send()
	p.now = p.now.Add(time.Microsecond)
}

func (p *path) due() int {
	return slices.IndexFunc(p.air, func(f flight) bool { return f.at <= p.now })
}

// check compares the scoreboard with what the receiver has: nothing is settled or held that it has
// not got.
func (p *path) check() {
	for i := range p.rec.Used() {
		psn := p.base + i
		switch s := p.rec.At(i).State; {
		case s == Settled && psn >= p.want, s == Held && psn >= p.want && !p.held[psn]:
			p.t.Fatalf("PSN %d is %v, the receiver expects %d and holds %v", psn, s, p.want, p.held)
		}
	}
	if p.rec.Used() > p.rec.cfg.Limit || p.rec.Count(Flying) > p.rec.cfg.Window && p.rec.Kind() == RACK {
		p.t.Fatalf("%d PSNs, %d in flight, with limit %d and window %d", p.rec.Used(), p.rec.Count(Flying), p.rec.cfg.Limit, p.rec.cfg.Window)
	}
}

func config(kind Kind, window int) Config {
	return Config{Kind: kind, Window: window, Limit: 4 * window, Low: 100 * time.Microsecond, High: 320 * time.Microsecond}
}

// Everything arrives, whatever the way loses and reorders, and the scoreboard never claims more than
// the receiver has.
func TestRecoveryDelivers(t *testing.T) {
	for _, kind := range []Kind{IRN, RACK} {
		for seed := range uint64(120) {
			r := rand.New(rand.NewPCG(seed, 4))
			p := newPath(t, seed, config(kind, 1+r.IntN(60)), 300, time.Duration(2+r.IntN(60))*time.Microsecond)
			p.loss = []float64{0, 0.01, 0.1, 0.3}[seed%4]
			p.late = []time.Duration{0, time.Microsecond, 40 * time.Microsecond}[seed%3]
			p.run()
		}
	}
}

// L3: without loss and reordering nothing is sent twice. With loss p, a packet is sent at most
// 1.25/(1−p) times on average, and with RACK a lost retransmission waits for no timeout.
func TestTransmissionsOfAPacket(t *testing.T) {
	for _, kind := range []Kind{IRN, RACK} {
		for _, loss := range []float64{0, 0.001, 0.01, 0.05, 0.1} {
			const total = 8000
			p := newPath(t, 7, config(kind, 120), total, 120*time.Microsecond)
			p.loss = loss
			p.run()
			mean := float64(len(p.sent)) / total
			t.Logf("%v at %.1f %%: %.4f transmissions of a packet, at most %.4f; spurious %d", kind, 100*loss, mean, 1.25/(1-loss), p.rec.Spurious)
			if mean > 1.25/(1-loss) || loss == 0 && (len(p.sent) != total || p.rec.Spurious != 0 || p.rec.Episodes != 0) {
				t.Errorf("%v at %.1f %%: %.4f transmissions of a packet, %d spurious, %d recoveries", kind, 100*loss, mean, p.rec.Spurious, p.rec.Episodes)
			}
		}
	}
}

// With IRN a packet is sent again at most once in a recovery, unless a timeout was due.
func TestIRNSendsAHoleAgainOnce(t *testing.T) {
	p := newPath(t, 3, config(IRN, 50), 3000, 50*time.Microsecond)
	p.loss = 0.05
	last := map[int]uint64{} // the recovery in which a PSN was sent again last
	for p.base < p.total {
		before := len(p.sent)
		timeouts := p.rec.backoff
		p.step()
		if p.rec.backoff > timeouts {
			clear(last)
		}
		for _, s := range p.sent[before:] {
			if p.copys[s.psn] == 1 {
				continue
			}
			if last[s.psn] == p.rec.Episodes {
				t.Fatalf("PSN %d is sent again twice in recovery %d", s.psn, p.rec.Episodes)
			}
			last[s.psn] = p.rec.Episodes
		}
	}
}
