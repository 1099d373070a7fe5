package meta

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// model is a store with one key. Its clients append, hear answers and report in a random order, and
// other appends absorb some of theirs. It knows the chain, which the server does not.
type model struct {
	r     *rand.Rand
	s     *Server
	e     *entry
	free  []layout.Location
	chain []layout.Location // from the first node of the key on
	// absorbed has, by absorbed node, the node to which it leads.
	absorbed map[layout.Location]layout.Location
	clients  []modelClient
	freed    int
}

// modelClient is a client with an append in flight, if begun is true, and reports that are on their
// way, the oldest first.
type modelClient struct {
	heard    uint64
	begun    bool
	node     layout.Location
	since    uint64 // what the client had heard when it began
	reports  [][]rpc.Record
	pending  []rpc.Record
	answered uint64 // the clock of an answer that is on its way
}

const modelNodes = 48

func newModel(seed uint64, clients int) *model {
	s := newServer()
	s.mem.space = layout.Space{Servers: 1, Entries: layout.Counts{0: modelNodes}, Shortcuts: 4}
	s.mem.memory = make([]memory, 1)
	s.pool.clock = 5 << clockBits
	s.pool.nodes.held = heldNodes{}
	m := &model{
		r: rand.New(rand.NewPCG(seed, 1)), s: s, absorbed: map[layout.Location]layout.Location{}, clients: make([]modelClient, clients),
	}
	for h := range modelNodes {
		m.free = append(m.free, layout.Location{Handle: s.mem.space.First(0, 0) + layout.Handle(h), Version: 1})
	}
	first := m.take(0)
	s.pool.nodes.held.drop(first.Handle)
	m.chain = append(m.chain, first)
	m.e = &entry{key: 1, at: first, since: s.pool.clock, recorded: true, mirrored: true}
	s.chains.keys = map[uint64]*entry{1: m.e}
	return m
}

func (m *model) take(client int) layout.Location {
	l := m.free[0]
	m.free = m.free[1:]
	m.s.pool.nodes.held.put(l.Handle, held{client: uint32(client) + 1, version: l.Version})
	return l
}

// step does one thing that can happen. planted changes what clients say.
func (m *model) step(planted func(rec *rpc.Record)) {
	i := m.r.IntN(len(m.clients))
	c := &m.clients[i]
	switch m.r.IntN(5) {
	case 0: // a client begins an append
		if !c.begun && len(m.free) > 0 {
			c.begun, c.node, c.since = true, m.take(i), c.heard
		}
	case 1: // an append takes effect, and absorbs another one that is in flight
		if !c.begun {
			break
		}
		m.chain = append(m.chain, c.node)
		m.ended(c)
		if o := &m.clients[m.r.IntN(len(m.clients))]; o.begun && m.r.IntN(3) == 0 {
			m.absorbed[o.node] = c.node
			m.ended(o)
		}
	case 2: // a client sends what it has to report
		if len(c.pending) > 0 {
			for k := range c.pending {
				if planted != nil {
					planted(&c.pending[k])
				}
			}
			c.reports, c.pending = append(c.reports, c.pending), nil
		}
	case 3: // a report arrives
		if len(c.reports) > 0 {
			m.s.chains.collect(uint32(i)+1, c.reports[0])
			c.reports = c.reports[1:]
			c.answered = m.s.pool.clock
		}
	case 4: // an answer arrives
		c.heard = max(c.heard, c.answered)
	}
	if m.r.IntN(4) == 0 { // the directory is written, and superseded nodes are free
		m.settle()
	}
}

func (m *model) ended(c *modelClient) {
	c.begun, c.pending = false, append(c.pending, rpc.Record{Key: 1, Heard: c.since, New: c.node})
}

func (m *model) settle() {
	m.e.recorded = true
	m.s.chains.settle(m.e)
	for l, ok := m.s.pool.nodes.free[0].Pop(anywhere); ok; l, ok = m.s.pool.nodes.free[0].Pop(anywhere) {
		m.free = append(m.free, l)
		m.freed++
	}
}

// wrong returns what is wrong with what the server knows: the node that it takes for the newest one
// leads to the end of the chain, and no node on the way is free or superseded.
func (m *model) wrong() error {
	at := m.e.at
	if by, ok := m.absorbed[at]; ok {
		at = by
	}
	i := slices.Index(m.chain, at)
	if i < 0 {
		return fmt.Errorf("node %v is not in the chain", m.e.at)
	}
	gone := map[layout.Handle]bool{}
	for _, l := range slices.Concat(m.e.passed, m.free) {
		gone[l.Handle] = true
	}
	for _, l := range append([]layout.Location{m.e.at}, m.chain[i:]...) {
		if gone[l.Handle] {
			return fmt.Errorf("node %v is not needed any more, but follows %v", l, m.e.at)
		}
	}
	return nil
}

// The server frees nodes by the order of reports alone. Whatever the order in which clients append,
// report and hear, and whatever appends absorb others: no node is free to which the newest known node
// leads. Nodes are used again and again.
func TestOrderOfReports(t *testing.T) {
	const seeds, steps = 500, 600
	freed := 0
	for seed := range uint64(seeds) {
		m := newModel(seed, 2+int(seed%6))
		for n := range steps {
			m.step(nil)
			if err := m.wrong(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, n, err)
			}
		}
		freed += m.freed
	}
	if freed < seeds*modelNodes/2 {
		t.Errorf("only %d nodes were freed", freed)
	}
}

// The model notices clients that claim to have heard more than they had when they began, and a server
// that lets the clocks of an earlier incarnation count.
func TestOrderOfReportsIsJudged(t *testing.T) {
	for name, planted := range map[string]func(m *model) func(*rpc.Record){
		"the clock when the report is sent": func(m *model) func(*rpc.Record) {
			return func(rec *rpc.Record) { rec.Heard = m.s.pool.clock }
		},
		"one clock more": func(*model) func(*rpc.Record) {
			return func(rec *rpc.Record) { rec.Heard++ }
		},
		"clocks of another incarnation": func(*model) func(*rpc.Record) {
			return func(rec *rpc.Record) { rec.Heard += 1 << clockBits }
		},
	} {
		found := false
		for seed := uint64(0); seed < 500 && !found; seed++ {
			m := newModel(seed, 2+int(seed%6))
			how := planted(m)
			for range 600 {
				if m.step(how); m.wrong() != nil {
					found = true
					break
				}
			}
		}
		if !found {
			t.Errorf("%s: not found in 500 seeds", name)
		}
	}
}
