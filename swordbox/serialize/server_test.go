package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// The words of one cache line may be on different shared connections, and so may neighbours.
func TestNeighboursAreSpread(t *testing.T) {
	apart := 0
	for i := range uint64(1000) {
		if ShardOf(16*i, 2) != ShardOf(16*i+8, 2) {
			apart++
		}
		if ShardOf(16*i, 2) != ShardOf(16*i+7, 2) {
			t.Fatalf("the bytes of the word at %d are on two connections", 16*i)
		}
	}
	if apart < 300 || apart > 700 {
		t.Errorf("%d of 1000 neighbours are on different connections", apart)
	}
}

// The number of shared connections changes when no request is in flight, also if nothing but a tick
// comes. With fewer of them, words on the others have another connection: earlier requests have not
// all ended.
func TestNumberOfShardsFollowsTheRules(t *testing.T) {
	r, c := moved(t, 2)
	s := r.m.servers[0]
	for i, k := range s.links {
		if k.shard != i || k.conn.Number() != uint32(s.index)<<8|uint32(i)+1 || k.s != s {
			t.Errorf("connection %d has shard %d, number %d", i, k.shard, k.conn.Number())
		}
	}
	generations := []uint32{s.links[0].generation, s.links[1].generation}
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	c.post(c.read(64, 0, 8))
	r.settle()
	for _, step := range []struct {
		want      int
		busy      bool
		shards    int
		unsettled bool
	}{{1, true, 2, false}, {2, false, 2, false}, {1, false, 1, true}, {3, false, 3, false}, {3, false, 3, false}} {
		if !step.busy && r.tap != nil {
			r.tap = nil
			r.run(20 * time.Millisecond)
			c.n.poll()
		}
		s.unsettled, s.want = false, step.want
		r.do(func(*pipeline.Ctx) {})
		if s.shards != step.shards || s.unsettled != step.unsettled || len(s.links) != max(2, step.shards) {
			t.Errorf("%+v: %d shards, %d connections, unsettled %v", step, s.shards, len(s.links), s.unsettled)
		}
	}
	for i, want := range generations {
		if s.links[i].generation != want {
			t.Errorf("connection %d is up, and its generation is forgotten", i)
		}
	}
	// Connections that rules did not need, and that are down, begin again. One that rules need does
	// not.
	for i, kept := range []bool{true, false} {
		k := s.links[i]
		r.do(func(ctx *pipeline.Ctx) {
			r.m.Detach(ctx, switchconn.Key{Server: s.addr, Shard: i}, k.generation)
		})
		if k.conn.State() == requester.Up {
			t.Fatal("it is up")
		}
		s.shards, s.want = 1, 2
		if s.resize(); (k.generation != 0) != kept {
			t.Errorf("connection %d: generation %d", i, k.generation)
		}
	}
}

// A congestion notification is due when its interval has passed, to the nanosecond. It says what a
// NIC's would.
func TestIntervalOfCongestionNotifications(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	l := r.sequencerOf(conns[0])
	var got []wire.Frame
	r.tap = func(up bool, port int, data []byte) bool {
		if f := parse(data); !up && port == 0 {
			got = append(got, f)
		}
		return up || port != r.server.port
	}
	conns[0].post(conns[0].faa(64, 1, 0))
	r.settle()
	for early, want := range map[clock.Time]int{0: 1, 1: 0} {
		got = nil
		r.do(func(ctx *pipeline.Ctx) {
			r.m.servers[0].links[0].slowing.next = 0 // both are at the same time, and the order is random
			l.replies.cnpAt = ctx.Now + early
			r.m.servers[0].links[0].congested(ctx)
			if (l.replies.cnpAt == ctx.Now+cnpInterval) != (want == 1) {
				t.Errorf("the next one is due at %v, now is %v", l.replies.cnpAt, ctx.Now)
			}
		})
		if len(got) != want {
			t.Errorf("%d ns early: %d notifications", early, len(got))
		}
		if want == 1 && (got[0].BTH.Opcode != wire.CNP || !got[0].BTH.BECN || got[0].BTH.PSN != 0) {
			t.Errorf("%v", &got[0])
		}
	}
}

// Held requests are looked at when a shared connection comes, goes, or has a deadline: their place
// may have become free.
func TestHeldRequestsAreLookedAt(t *testing.T) {
	for name, event := range map[string]func(r *rig, ctx *pipeline.Ctx){
		"it comes": func(r *rig, ctx *pipeline.Ctx) { r.attach(ctx, 0, 16) },
		"it goes": func(r *rig, ctx *pipeline.Ctx) {
			r.m.Detach(ctx, switchconn.Key{Server: ipOf(serverIP)}, r.gen)
		},
		"it has a deadline": func(r *rig, ctx *pipeline.Ctx) {
			f := heldRequest(r.m.flows.list[0], wire.RCSendOnly)
			k := r.m.servers[0].links[0]
			k.conn.Submit(ctx, &f.Frame, requester.Tag{Flow: 99})
			late := *ctx
			late.Now = k.conn.Deadline()
			r.m.kick = false
			r.m.Tick(&late)
		},
	} {
		r, l, _ := answersTo(t)
		r.do(func(ctx *pipeline.Ctx) {
			if v := l.hold(ctx, heldRequest(l, wire.RCSendOnly), 1); v.Action != pipeline.ActConsume {
				t.Fatalf("%+v", v)
			}
			r.m.kick = false
			event(r, ctx)
			if l.waits.held.n != 0 {
				t.Errorf("%s: the request is still held", name)
			}
		})
	}
}
