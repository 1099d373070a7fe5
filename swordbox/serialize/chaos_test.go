package serialize

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

var (
	chaosSeed  = flag.Uint64("chaos-seed", 0, "replay only this seed of the chaos")
	chaosSeeds = flag.Int("chaos-seeds", 40, "how many seeds of chaos")
)

// chaos is a world in which clients die and shared connections fail.
type chaos struct {
	*world
	r       *rand.Rand
	gone    []*user // users that have ended with an operation of unknown outcome
	unknown [nCounters]int
	nextID  int
	deaths  int
	errors  int
	breaks  int
	keys    map[*user]*engine.MR // users with a word and an R_Key that no other user has
	revoked map[*user]bool
}

// grant gives a user a word and an R_Key that no other user has.
func (c *chaos) grant(u *user) {
	mr, err := c.server.e.RegMR(c.server.pd, make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteAtomic)
	if err != nil {
		c.t.Fatal(err)
	}
	r, _ := mr.Region()
	c.keys[u] = mr
	u.foreignBase, u.foreignKey = r.Base(), r.RKey()
}

// lost gives up a user: its operations in flight may or may not have been executed.
func (c *chaos) lost(u *user) {
	for _, id := range u.order {
		if k := u.ops[id].counter; k >= 0 {
			c.unknown[k]++
		}
	}
	u.left, u.order = 0, nil
	clear(u.ops)
	c.gone = append(c.gone, u)
	c.users = slices.DeleteFunc(c.users, func(x *user) bool { return x == u })
}

// finish handles completions. A completion with an error ends the user, whose client then connects
// again.
func (c *chaos) finish() {
	for _, u := range slices.Clone(c.users) {
		for _, wc := range u.n.poll() {
			if wc.QPN != u.qp.Num() {
				continue // flushed work of an old connection
			}
			if wc.Status != verbs.Success {
				// When the server has ended a connection, its NAK may be lost, as it may without a
				// switch.
				guilty := c.revoked[u] && (wc.Status == verbs.RemAccessErr || wc.Status == verbs.RetryExcErr)
				if wc.Status != verbs.RemOpErr && !guilty {
					c.t.Errorf("user %d: %v", u.id, wc.Status)
				}
				c.errors++
				c.lost(u)
				c.again(u)
				break
			}
			if u.order[0] != wc.ID {
				c.t.Fatalf("user %d: completion of %d, want %v", u.id, wc.ID, u.order)
			}
			u.order = u.order[1:]
			o := u.ops[wc.ID]
			delete(u.ops, wc.ID)
			u.free = append(u.free, o.buf)
			o.check()
		}
	}
	c.server.poll()
}

// again connects a client again, while the network has no faults.
func (c *chaos) again(u *user) {
	if c.nextID >= 14 {
		return
	}
	faults := c.faults
	c.faults = chance{}
	c.run(3 * time.Millisecond) // packets of the old connection arrive meanwhile
	u.n.poll()
	conn := c.connect(u.n.port)
	c.faults = faults
	n := &user{
		conn: conn, id: c.nextID, w: c.world, r: rand.New(rand.NewPCG(c.r.Uint64(), 3)), ops: map[uint64]*op{}, left: 40, depth: u.depth, lock: -1,
	}
	for b := range bufs {
		n.free = append(n.free, b*bufLen)
	}
	c.nextID++
	c.grant(n)
	c.users = append(c.users, n)
}

// harm injects a failure.
func (c *chaos) harm() {
	switch c.r.IntN(4) {
	case 3: // a key is deregistered: only its user sends the requests that are refused
		if u := c.users[c.r.IntN(len(c.users))]; !c.revoked[u] {
			c.revoked[u] = true
			if err := c.keys[u].Dereg(); err != nil {
				c.t.Fatal(err)
			}
		}
	case 0:
		if len(c.users) > 2 && c.deaths < 3 {
			u := c.users[c.r.IntN(len(c.users))]
			u.n.dead = true
			c.lost(u)
			c.deaths++
		}
	case 1:
		if c.breaks < 3 {
			c.breaks++
			q := c.shared[c.r.IntN(len(c.shared))]
			_ = q.ToError(c.now, &c.server.out)
		}
	case 2: // the link to the server is cut for a while
		before := c.faults
		c.faults.loss = 1000
		c.run(time.Duration(c.r.IntN(3000)) * time.Microsecond)
		c.faults = before
	}
}

func (c *chaos) drive(limit time.Duration) {
	end := c.now.Add(limit)
	next := c.now.Add(time.Duration(c.r.IntN(400)) * time.Microsecond)
	for {
		c.finish()
		busy := false
		for _, u := range c.users {
			for range u.depth {
				if !u.start() || u.r.IntN(3) > 0 {
					break
				}
			}
			busy = busy || u.left > 0 || len(u.ops) > 0
		}
		c.flush()
		if c.t.Failed() {
			return
		}
		if !busy {
			break
		}
		if c.now >= end {
			c.t.Fatalf("not done at %v: %s", c.now, c.state())
		}
		if c.now >= next {
			c.harm()
			next = c.now.Add(time.Duration(c.r.IntN(4000)) * time.Microsecond)
		}
		c.step(c.now + 50*hop)
	}
	c.faults = chance{}
	c.run(3 * time.Second)
	c.finish()
	c.audit()
}

// audit is world.audit, which here allows operations with an unknown outcome.
func (c *chaos) audit() {
	for k := range c.priors {
		p := c.priors[k]
		slices.Sort(p)
		got := c.server.word(counters + 64*k)
		if len(slices.Compact(slices.Clone(p))) != len(p) {
			c.t.Errorf("counter %d: an addition was answered twice: %v", k, p)
		}
		if len(p) > 0 && p[len(p)-1] >= got || got < uint64(len(p)) || got > uint64(len(p)+c.unknown[k]) {
			c.t.Errorf("counter %d is %d after %d additions, %d unknown, greatest %v", k, got, len(p), c.unknown[k], p[max(0, len(p)-1):])
		}
		c.priors[k] = nil
		c.server.buf[counters+64*k] = 0 // for the checks of the world
	}
	for k, h := range c.holder {
		if got := c.server.word(locks + 64*k); h >= 0 && got != uint64(h+1) {
			c.t.Errorf("lock %d is %d, holder %d", k, got, h)
		}
	}
	for _, u := range c.users {
		if got := c.server.word(private + 64*u.id); got != u.word {
			c.t.Errorf("user %d: own word is %#x, want %#x", u.id, got, u.word)
		}
	}
	for _, s := range c.m.Info(c.now).Shared {
		if s.Outstanding+s.Queued > 0 {
			c.t.Errorf("shared connection is not idle at the end: %+v", s)
		}
	}
	if c.m.held.inUse != 0 {
		c.t.Errorf("%d packets are held at the end", c.m.held.inUse)
	}
	c.m.words.Each(func(w *wordsWord) {
		off := int(w.VA - c.server.base)
		if off >= locks && off < regionLen && w.State == wordsKnown && c.server.word(off) != w.Value {
			c.t.Errorf("word at %d is %d, the switch believes %d", off, c.server.word(off), w.Value)
		}
		if w.Pending != 0 {
			c.t.Errorf("word at %d has %d pending", off, w.Pending)
		}
	})
}

func runChaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 77))
	rc := rigConfig{seed: seed, clients: 3 + r.IntN(3), shards: 1 + r.IntN(2), depth: 1 + r.IntN(16)}
	rc.rules = atomicsRule(rc.shards)
	rc.rules[0].Misses = rules.Answerer(rc.seed % 3)
	rc.cfg.Shared = requester.Config{RTO: 50 * time.Microsecond, Silence: 3150 * time.Microsecond, Ring: 4 + r.IntN(20)}
	mix := [][]string{{"lock", "lock", "count", "own", "foreign"}, {"lock", "count", "own", "small", "read", "medium"}, {"count", "foreign"}}[r.IntN(3)]
	c := &chaos{world: newWorld(t, rc, mix, 60, []int{1, 2, 8}[r.IntN(3)]), r: r}
	c.nextID = rc.clients
	c.keys, c.revoked = map[*user]*engine.MR{}, map[*user]bool{}
	for _, u := range c.users {
		c.grant(u)
	}
	c.faults = chance{loss: r.IntN(20), dup: r.IntN(20), late: r.IntN(40)}
	c.drive(20 * time.Second)
	if t.Failed() {
		t.Logf("%s\ndeaths %d, errors %d, breaks %d, mix %v, faults %+v", c.state(), c.deaths, c.errors, c.breaks, mix, c.faults)
		t.Logf("replay: go test ./swordbox/serialize -run TestChaos -chaos-seed %d", seed)
	}
}

// Clients die, shared connections fail, the server is cut off. The other clients see an error only
// if the outcome of one of their requests is not known; no addition is lost or done twice, and no
// lock has two holders.
func TestChaos(t *testing.T) {
	if *chaosSeed != 0 {
		runChaos(t, *chaosSeed)
		return
	}
	for seed := range uint64(*chaosSeeds) {
		t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) { runChaos(t, seed+1) })
	}
}
