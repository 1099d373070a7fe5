package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// setRules gives the machine these rules, as an operator does.
func (r *rig) setRules(list []rules.Rule) {
	r.t.Helper()
	set, err := rules.NewSet(list)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m.SetRules(set)
	r.do(func(*pipeline.Ctx) {})
}

// moved makes connections whose READs move, under a rule with this number of shared connections.
func moved(t *testing.T, shards int) (*rig, *conn) {
	t.Helper()
	r, conns := known(t, rigConfig{clients: 1, shards: shards, rules: moveRule(shards)})
	c := conns[0]
	for range 4 { // the first READ proves the key
		c.post(c.read(64, 0, 8))
		r.settle()
		c.done(verbs.Success)
	}
	if r.m.Stats().Moved == 0 {
		t.Fatal("no READ has moved")
	}
	return r, c
}

// The response to a moved READ is lost, and the rules change before the client retransmits the
// READ. The client gets its answer over the connection that carried the READ, or over another one.
func TestMovedReadIsAskedForAfterAChangeOfRules(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *rig)
	}{
		{"no rules", func(r *rig) { r.setRules(nil) }},
		{"fewer connections", func(r *rig) { r.setRules(moveRule(1)) }},
		{"fewer and more", func(r *rig) { r.setRules(moveRule(1)); r.setRules(moveRule(4)) }},
		{"its own connection ends", func(r *rig) {
			own := r.m.flows.list[0].place
			r.do(func(ctx *pipeline.Ctx) {
				r.m.Detach(ctx, switchconn.Key{Server: ipOf(serverIP), Shard: own}, r.m.servers[0].links[own].generation)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, conn := moved(t, 4)
			lost := 0
			r.tap = func(up bool, port int, data []byte) bool {
				if !up && port == conn.n.port && parse(data).BTH.Opcode == wire.RCReadResponseOnly && lost == 0 {
					lost++
					return false
				}
				return true
			}
			conn.post(conn.read(64, 0, 8))
			r.run(100 * time.Microsecond)
			if lost != 1 {
				t.Fatal("no response was lost")
			}
			c.change(r)
			r.run(20 * time.Millisecond) // the client's NIC retransmits after 4 ms
			conn.done(verbs.Success)
		})
	}
}

// A connection that a rule needs again carries requests again, although the dialer reports nothing,
// because it was up all the time.
func TestSharedConnectionIsNeededAgain(t *testing.T) {
	r, c := moved(t, 2)
	r.setRules(moveRule(1))
	r.setRules(moveRule(2))
	c2 := r.connect(0)
	before := r.m.Stats().Moved
	for range 4 {
		for _, x := range []*conn{c, c2} {
			x.post(x.read(64, 0, 8))
			r.settle()
			x.done(verbs.Success)
		}
	}
	if n := r.m.Stats().Moved - before; n < 6 { // the first READ of a connection is not moved
		t.Errorf("%d of 8 READs moved", n)
	}
	for shard, l := range r.m.servers[0].links {
		if r.m.byQPN[l.ownQPN] != l {
			t.Errorf("the switch does not know its queue pair of connection %d", shard)
		}
	}
}

// The switch ends connections that no rule has needed for some time. When a later rule makes it
// connect again, this does not count as a failure of the server: READs whose answers were lost can
// still be executed again.
func TestConnectionsThatWereNotNeededAreMadeAgain(t *testing.T) {
	r, conn := moved(t, 4)
	r.setRules(moveRule(1))
	for shard := 1; shard < 4; shard++ {
		r.do(func(ctx *pipeline.Ctx) {
			r.m.Detach(ctx, switchconn.Key{Server: ipOf(serverIP), Shard: shard}, r.m.servers[0].links[shard].generation)
		})
	}
	r.run(20 * time.Millisecond)
	for range 3 {
		conn.post(conn.read(64, 0, 8))
		r.settle()
		conn.done(verbs.Success)
	}
	lost := 0
	r.tap = func(up bool, port int, data []byte) bool {
		if !up && port == conn.n.port && parse(data).BTH.Opcode == wire.RCReadResponseOnly && lost == 0 {
			lost++
			return false
		}
		return true
	}
	conn.post(conn.read(64, 0, 8))
	r.run(100 * time.Microsecond)
	if lost != 1 {
		t.Fatal("no response was lost")
	}
	r.setRules(moveRule(4))
	for shard := 1; shard < 4; shard++ {
		r.do(func(ctx *pipeline.Ctx) { r.attach(ctx, shard, 16) })
	}
	r.run(20 * time.Millisecond)
	conn.done(verbs.Success)
}
