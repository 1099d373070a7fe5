package serialize

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

type server struct {
	m     *Machine
	addr  netip.Addr
	index uint16 // index in Machine.servers
	// incarnation counts the shared connections that were attached. breaks counts how many of them
	// replaced an earlier connection; see proof.
	incarnation, breaks uint32
	// moves is true if a rule of action move or atomics is in force for the server. watch is true
	// if a rule of action atomics is or was: the switch may know words of the server, so it looks
	// at all WRITEs and atomics that may change them. proves is true if a rule of action move is or
	// was: a request moves only if its R_Key is proven, so the switch records proofs in keys.
	moves, watch, proves bool
	rules                []*rules.Rule // the hardened rules for the server
	// links are the shared connections, by shard. New requests use only links[:shards]. The other
	// links belong to earlier rules. While they are up, a READ that was sent there can be sent
	// there again if its response was lost.
	links    []*link
	shards   int
	patience time.Duration // how long the rules let a CAS wait for its value
	slow     rules.Slowed  // of all rules for the server
	// rates is the congestion control of the switch's own rates, if slow says that the switch has any.
	rates congestion.Config
	// want is how many shards the rules need. The method resize sets shards to want when no request
	// is in flight.
	want int
	keys keys
	words
}

// setRules replaces the server's rules by the hardened rules of the list.
func (s *server) setRules(list []*rules.Rule) {
	former, slow := s.rules, s.slow
	s.rules, s.patience, s.slow = nil, 0, rules.SlowAll
	for _, r := range list {
		if r.Mode == rules.Hardened {
			s.rules = append(s.rules, r)
			if r.Moves() {
				s.slow = r.Slowed()
			}
			if r.Misses == rules.AnswerWait {
				s.patience = max(s.patience, r.MissPatience())
			}
		}
	}
	s.setParams()
	if s.slow != slow {
		s.changeRates()
	}
	same := slices.EqualFunc(former, s.rules, func(a, b *rules.Rule) bool {
		return a.Action == b.Action && a.RKey == b.RKey && a.From == b.From && a.To == b.To
	})
	s.unsettled = s.unsettled || s.m.late && !same
	s.resize()
}

// resize sets the number of shards to the number that the rules need. It waits until no request is
// in flight, so that requests for one word are never on two connections. A connection that is not
// needed any more stays in links, because it stays up for some time. If a rule needs it again in
// this time, the dialer does not report again that it is up.
func (s *server) resize() {
	if s.want == s.shards || s.busy() {
		return
	}
	s.unsettled = s.unsettled || s.want < s.shards
	for _, l := range s.links[min(s.shards, len(s.links)):] {
		if l.conn.State() != requester.Up {
			// The connection was not needed, so its end does not count as a failure when the dialer
			// makes it again.
			l.generation = 0
		}
	}
	s.shards = s.want
	for len(s.links) < s.shards {
		l := &link{s: s, shard: len(s.links)}
		cfg := s.m.cfg.Shared
		cfg.Number = uint32(s.index)<<8 | uint32(l.shard) + 1
		l.conn = requester.New(cfg, l)
		s.links = append(s.links, l)
	}
}

// linkUp returns the connection of a shard or, if it is down, another connection to the server that
// is up. If all are down, the result is that of the shard.
func (s *server) linkUp(shard int) *link {
	own := s.links[shard]
	if own.conn.State() != requester.Up {
		for _, l := range s.links {
			if l.conn.State() == requester.Up {
				return l
			}
		}
	}
	return own
}

// shardOf returns the shard of a word: the number of the shared connection that carries its
// requests.
func (s *server) shardOf(va uint64) int {
	return ShardOf(va, s.shards)
}

// ShardOf returns which of several shared connections carries the requests on the word at va.
func ShardOf(va uint64, shards int) int { return int((va>>3*0x9e3779b97f4a7c15)>>32) % shards }

// shardOfFlow returns which of several shared connections carries the moved requests of a flow. The
// two directions of a connection have consecutive numbers, so a simple remainder of the number
// would leave every second shard unused.
func shardOfFlow(id uint32, shards int) int { return int(id*0x9e3779b9>>16) % shards }

// match returns the first rule for a request; nil if there is none.
func (s *server) match(va uint64, n uint32, rkey uint32) *rules.Rule {
	return rules.First(s.rules, va, int(n), rkey)
}

// usable reports whether the shared connection of a shard can carry a request of n payload bytes,
// now or later.
func (s *server) usable(shard, n int) bool {
	c := s.links[shard].conn
	return c.State() == requester.Up && n <= c.Link().MTU
}
