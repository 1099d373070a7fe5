package hard

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// server is a memory server.
type server struct {
	m     *Machine
	addr  netip.Addr
	index uint16
	// life is how many shared connections were attached, breaks how many of them in place of a former one: see proof.
	life, breaks uint32
	// moves says that there is a rule that moves requests, watch that there has been one that replaces atomics.
	// proves, that there has been one that moves everything that is known to work.
	moves, watch, proves bool
	rules                []*rules.Rule // of mode hard
	links                []*link
	want                 int // links, as soon as nothing is outstanding
	keys                 keys
	clean                clock.Time // see cleanSince
	cleanAt              clock.Time // when clean was computed
}

// resize makes as many shared connections as the rules want, if that cannot part requests for the same word.
func (s *server) resize() {
	if s.want == len(s.links) || s.busy() {
		return
	}
	for len(s.links) > s.want {
		last := s.links[len(s.links)-1]
		if s.m.byQPN[last.ownQPN] == last {
			delete(s.m.byQPN, last.ownQPN)
		}
		s.links = s.links[:len(s.links)-1]
	}
	for len(s.links) < s.want {
		l := &link{s: s, shard: len(s.links)}
		cfg := s.m.cfg.Shared
		cfg.Number = uint32(s.index)<<8 | uint32(l.shard) + 1
		l.conn = shared.New(cfg, l)
		s.links = append(s.links, l)
	}
}

// shardOf is the shared connection of a word.
func (s *server) shardOf(va uint64) int {
	return int((va>>3*0x9e3779b97f4a7c15)>>32) % len(s.links)
}

// match is the rule for a request.
func (s *server) match(va uint64, n uint32, rkey uint32) *rules.Rule {
	for _, r := range s.rules {
		if (r.RKey == 0 || r.RKey == rkey) && r.Covers(va, int(n)) {
			return r
		}
	}
	return nil
}

// replaces reports whether a rule replaces the atomics of a word.
func (s *server) replaces(va uint64) bool { return s.ruleOf(va) != nil }

// cleanInterval is how old the answer of cleanSince may be.
const cleanInterval = clock.Time(20 * time.Microsecond)

// cleanSince is a time before which everything that was forwarded to the server on own connections has been answered, or
// cannot reach it any more.
func (s *server) cleanSince(now clock.Time) clock.Time {
	if s.clean != 0 && now-s.cleanAt < cleanInterval {
		return s.clean
	}
	floor := now - clock.Time(s.m.cfg.Words.Budget)
	at := now.Add(1)
	for _, l := range s.m.lanes {
		if l != nil && l.s == s && !l.closed {
			at = clock.Min(at, max(floor, l.cleanSince(now)))
		}
	}
	s.clean, s.cleanAt = at, now
	return at
}

// usable reports whether a shared connection can take a request of n payload bytes, now or later.
func (s *server) usable(shard, n int) bool {
	c := s.links[shard].conn
	return c.State() == shared.Up && n <= c.Link().MTU
}

// cnpInterval is the least time between two congestion notifications to a client (hole 38).
const cnpInterval = clock.Time(50 * time.Microsecond)

// congested tells every client with requests on the connection that a packet of it met congestion.
func (k *link) congested(ctx *pipeline.Ctx) {
	m := k.s.m
	k.conn.Each(func(t shared.Tag, _ wire.PSN, _ wire.Opcode, _ clock.Time) {
		ln := m.laneByTag(t)
		if ln == nil || ln.cnpAt > ctx.Now {
			return
		}
		ln.cnpAt = ctx.Now + cnpInterval
		m.stats.CNPs++
		ln.back().ACK(&m.tx, 0, 0)
		m.tx.BTH.Opcode, m.tx.BTH.BECN, m.tx.AETH = wire.CNP, true, wire.AETH{}
		ctx.Emit(&m.tx, "")
	})
}
