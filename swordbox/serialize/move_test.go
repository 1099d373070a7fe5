package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The flows under a rule of action move share its connections evenly, whatever numbers the table of
// flows gives to the two directions of a client's connection.
func TestMovedFlowsUseAllShards(t *testing.T) {
	const clients, shards = 16, 2
	r := newRig(t, rigConfig{clients: clients, shards: shards, rules: moveRule(shards)})
	flows := make(map[int]int)
	for i := range clients {
		c := r.connect(i)
		c.prove(c.faa(0, 0, 0), c.faa(1024, 0, 0))
		c.post(c.faa(64, 1, 0))
		r.run(time.Millisecond)
		c.done(verbs.Success)
	}
	for _, l := range r.m.flows.list {
		flows[l.place]++
	}
	for shard := range shards {
		if n := flows[shard]; n < clients/shards/2 {
			t.Errorf("of %d flows, %d use shard %d: %v", clients, n, shard, flows)
		}
	}
}
